// Package measure has what follows from the metrics of a plan alone. It has the windows and when
// they are asked for, the least evidence, and the placeholders of queries.
package measure
