package sandbox

// A busy machine may give a rendering a small part of a core.
func init() { wallFactor = 20 }

// Seal is what a worker does before it renders.
func Seal() {
	if err := seal(); err != nil {
		panic(err)
	}
}
