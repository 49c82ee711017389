package main

import (
	"os"
	"testing"
)

// The page is written by a program, and in Git: it is what that program writes today.
func TestPage_IsCurrent(t *testing.T) {
	t.Chdir("../..")
	want, err := reference()
	if err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != want {
		t.Errorf("%s is not current: run make generate", page)
	}
}
