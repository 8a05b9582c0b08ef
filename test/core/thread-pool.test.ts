// The pool that CPU kernels run on.
import t from 'tap'
import { noCompiler, runNative } from '../fixtures/native-program.js'

t.test('exceptions, nested calls, several callers, limits and refused threads', { skip: noCompiler }, t => {
  t.strictSame(runNative(t, 'thread-pool', ['core/thread_pool.cc', 'backend/cpu/scratch.cc']), {
    'a limit of one': 'right',
    'no threads': 'right',
    'one thread': 'right',
    'the rest later': '2',
    'a limit of two': 'right',
    'thrown by the caller': 'right',
    'thrown by a helper': 'right',
    'thrown by a task': 'right',
    nested: 'right',
    guided: 'right',
    'own shares': 'right',
    'no memory': 'right',
    'two callers': 'right',
    'many callers': 'right',
    crowded: 'right',
  })
  t.end()
})
