package access

import (
	"sync"
	"time"
)

// answersFor is how long an answer of the API server counts.
const answersFor = 30 * time.Second

// maxAnswers bounds what is remembered. A stranger can ask about any number of tokens.
const maxAnswers = 10_000

// memory remembers answers of the API server for a while.
type memory[T any] struct {
	mu      sync.Mutex
	answers map[string]answer[T]
	now     func() time.Time
}

type answer[T any] struct {
	value T
	until time.Time
}

func newMemory[T any](now func() time.Time) *memory[T] {
	return &memory[T]{answers: map[string]answer[T]{}, now: now}
}

func (m *memory[T]) get(key string) (value T, ok bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	a, ok := m.answers[key]
	if !ok || !m.now().Before(a.until) {
		return value, false
	}
	return a.value, true
}

func (m *memory[T]) put(key string, value T) {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := m.now()
	if len(m.answers) >= maxAnswers {
		for key, a := range m.answers {
			if !now.Before(a.until) {
				delete(m.answers, key)
			}
		}
		if len(m.answers) >= maxAnswers {
			clear(m.answers)
		}
	}
	m.answers[key] = answer[T]{value, now.Add(answersFor)}
}
