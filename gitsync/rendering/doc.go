// Package rendering says where a sync renders folders, and how it fetches remote bases.
//
// All renderings of one sync share the time that remote bases may take. A renderer that has no
// place for a folder ends the sync: it is repeated once there is a place.
package rendering
