// The registry of blocks of memory, which every operand is looked up in.
import t from 'tap'
import { noCompiler, runNative } from '../fixtures/native-program.js'

t.test('a lookup never waits for a block that is dropped meanwhile', { skip: noCompiler }, t => {
  t.strictSame(runNative(t, 'block-registry', ['core/block.cc']), { wrong: '0', blocks: '0' })
  t.end()
})
