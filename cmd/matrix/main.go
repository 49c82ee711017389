// Command matrix runs tests on versions of Kubernetes, and writes the table of tested versions
// in README.md. Run it in the root of the repository, by `make matrix`.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	tableOnly := flag.Bool("table", false, "run nothing, and write the table of what was recorded")
	flag.Usage = func() {
		const usage = "usage: matrix FOLDER ...: folders with the devcluster and the kubectl of a version, such as bin/1.34"
		_, _ = fmt.Fprintln(flag.CommandLine.Output(), usage)
		flag.PrintDefaults()
	}
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	var err error
	switch {
	case *tableOnly && flag.NArg() == 0:
		err = writeTable(".")
	case !*tableOnly && flag.NArg() > 0:
		err = run(ctx, flag.Args())
	default:
		flag.Usage()
		os.Exit(2)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "matrix:", err)
		os.Exit(1)
	}
}

// run tests each version, those after a failure too. It records nothing unless all pass.
func run(ctx context.Context, folders []string) error {
	var problems []error
	var rows []row
	for _, folder := range folders {
		r, err := test(ctx, folder)
		if err != nil {
			fmt.Fprintf(os.Stderr, "%s: %v\n", r, err)
			err = fmt.Errorf("%s has failed", r)
		}
		problems, rows = append(problems, err), append(rows, r)
	}
	upgraded, err := upgrade(ctx, folders, rows)
	if err := errors.Join(append(problems, err)...); err != nil {
		return err
	}
	return errors.Join(record(".", rows, upgraded), writeTable("."))
}
