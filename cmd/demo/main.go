// Command demo shows what Tranche does on an embedded cluster, with a Git server and the
// controller beside it. It uses nothing but git and kubectl. It ends with 0 only if each
// state was really reached, as read from the API server.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"syscall"
)

func main() {
	stay := flag.Bool("stay", false, "bring everything up, and leave it running until ^C")
	cluster := flag.String("cluster", "", "folder with the devcluster and the kubectl to use; default: the demo's own")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	self, err := os.Executable()
	if err != nil {
		err = fmt.Errorf("finding bin/: %w", err)
	} else {
		err = run(ctx, filepath.Dir(self), *cluster, *stay)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "\ndemo:", err)
		os.Exit(1)
	}
}

// run plays the story with the programs of bin, or stays. The folder above bin has config
// and examples. Programs in the folder cluster, if that is not empty, come before those of bin.
func run(ctx context.Context, bin, cluster string, stay bool) (err error) {
	programs := []string{bin}
	if cluster != "" {
		if cluster, err = filepath.Abs(cluster); err != nil {
			return fmt.Errorf("finding %s: %w", cluster, err)
		}
		programs = slices.Compact([]string{cluster, bin})
	}
	dir, err := os.MkdirTemp("", "tranche-demo-")
	if err != nil {
		return err
	}
	s := newStage(programs, filepath.Dir(bin), dir)
	s.stay = stay
	defer func() {
		s.clear()
		if err == nil {
			err = os.RemoveAll(dir)
		} else {
			err = fmt.Errorf("%w\nlogs are in %s", err, dir)
		}
	}()
	if err := s.set(ctx); err != nil {
		return err
	}
	if stay {
		return s.leave(ctx)
	}
	return s.tell(ctx)
}
