// The mask of dropout: words of Philox, the same bits on every engine, each element a function of its place alone.
import t from 'tap'
import { philox } from '#lib/core/philox.js'
import { jsKernels } from '#lib/kernels/js/js.js'
import { requireAddon } from '#lib/native.js'
import { identical } from '../../fixtures/close.js'

const addon = requireAddon()
const mask = (kernels: 'js' | 'cpu', count: number, ratio: number, stream: number, state: Uint32Array) => {
  const args = { count, ratio, stream, state, mask: new Float32Array(count + 1).fill(9) }
  if (kernels === 'js') jsKernels.runSync('dropoutMask', args)
  else addon.run('dropoutMask', args)
  t.equal(args.mask[count], 9, 'nothing is written past the end')
  return args.mask.subarray(0, count)
}

t.test('the words of Philox4x32-10, as its authors publish them', async t => {
  const all = 2 ** 32 - 1
  t.same(philox([0, 0, 0, 0], [0, 0]), [0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8])
  t.same(philox([all, all, all, all], [all, all]), [0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd])
  const pi = [0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344]
  t.same(philox(pi, [0xa4093822, 0x299f31d0]), [0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1])
})

t.test('js and cpu give the same bits', async t => {
  for (const [count, ratio] of [
    [1, 0.5],
    [7, 0.1],
    [70_003, 0.3],
    [5, 0],
    [6, 1],
  ] as const) {
    const state = Uint32Array.of(2 ** 32 - 1, count, 3)
    identical(
      t,
      mask('cpu', count, ratio, 4, state),
      mask('js', count, ratio, 4, state),
      `${count}, ${ratio}`,
    )
  }
  t.same([...mask('cpu', 6, 1, 0, Uint32Array.of(1, 2, 3))], [0, 0, 0, 0, 0, 0])
  t.same([...mask('cpu', 3, 0, 0, Uint32Array.of(1, 2, 3))], [1, 1, 1])
})

t.test('as many are dropped as asked for, others elsewhere and in other steps', async t => {
  const [count, ratio] = [40_001, 0.3]
  const first = mask('cpu', count, ratio, 0, Uint32Array.of(5, 1, 0))
  const dropped = first.filter(value => value === 0).length
  t.ok(Math.abs(dropped / count - ratio) < 0.01, `${dropped} of ${count}`)
  t.ok(first.every(value => value === 0 || value === Math.fround(1 / 0.7)))
  identical(t, mask('cpu', 13, ratio, 0, Uint32Array.of(5, 1, 0)), first.slice(0, 13), 'a shorter one')
  for (const [stream, state] of [
    [1, [5, 1, 0]],
    [0, [6, 1, 0]],
    [0, [5, 2, 0]],
    [0, [5, 1, 1]],
  ] as const) {
    const other = mask('cpu', count, ratio, stream, Uint32Array.from(state))
    const both = first.filter((value, i) => value === 0 && other[i] === 0).length
    t.ok(Math.abs(both / count - ratio ** 2) < 0.01, `${both} are dropped in both`)
  }
})

t.test('what is refused', async t => {
  const args = { count: 4, ratio: 0.5, stream: 0, state: new Uint32Array(3), mask: new Float32Array(4) }
  for (const [change, code] of [
    [{ ratio: 1.5 }, 'ERR_ARGUMENT'],
    [{ ratio: Number.NaN }, 'ERR_ARGUMENT'],
    [{ state: new Uint32Array(2) }, 'ERR_SHAPE'],
    [{ mask: new Float32Array(3) }, 'ERR_SHAPE'],
    [{ stream: -1 }, 'ERR_ARGUMENT'],
  ] as const) {
    t.throws(() => jsKernels.runSync('dropoutMask', { ...args, ...change }), { code })
    t.throws(() => addon.run('dropoutMask', { ...args, ...change }), { code })
  }
})
