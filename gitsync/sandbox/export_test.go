package sandbox

// Seal is what a worker does before it renders.
func Seal() {
	if err := seal(); err != nil {
		panic(err)
	}
}
