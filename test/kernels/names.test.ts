// TypeScript and the addon list the same operations and the same functions.
import t from 'tap'
import { kernelNames } from '#lib/kernels/js/js.js'
import { binaryFns, unaryFns } from '#lib/kernels/strided-args.js'
import { loadAddon } from '#lib/native.js'

const { addon } = loadAddon()

t.test('names', { skip: addon ? false : 'the addon does not load' }, async t => {
  const native = addon!.kernelNames()
  t.strictSame(native.operations.toSorted(), kernelNames)
  t.strictSame(native.unary.toSorted(), [...unaryFns].sort())
  t.strictSame(native.binary.toSorted(), [...binaryFns].sort())
})
