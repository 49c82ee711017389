// Package access decides who reads the dashboard, and what they may see.
package access
