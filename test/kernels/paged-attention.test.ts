// Attention over blocks: against its formula in double, bit for bit however rows are shared out among calls, and tables
// that lead out of the caches.
import t from 'tap'
import { jsKernels } from '#lib/kernels/js/js.js'
import type { KernelArgs } from '#lib/kernels/kernels.js'
import type { PagedCacheType } from '#lib/kernels/paged-args.js'
import { requireAddon } from '#lib/native.js'
import { close, identical, maxAbs } from '../fixtures/close.js'
import { type PagedOptions, PagedProblem, type Piece } from '../fixtures/paged-attention.js'

const addon = requireAddon()
t.teardown(() => addon.setThreads(0))

type Args = KernelArgs['pagedAttention']
type Run = (op: 'pagedAttention', args: Args) => void
const runs: readonly [string, Run][] = [
  ['cpu', (op, args) => void addon.run(op, args)],
  ['js', (op, args) => jsKernels.runSync(op, args)],
]

const options: Readonly<Record<string, PagedOptions>> = {
  'one token': { lengths: [1], heads: 1, kvHeads: 1, depth: 1 },
  'several sequences': { lengths: [5, 1, 13], blockSize: 3 },
  'rotated in halves': { lengths: [7, 9], depth: 8, rotary: 8 },
  'rotated in pairs, the first elements': { lengths: [7, 9], depth: 10, rotary: 6, interleaved: true },
  'normalized and rotated': { lengths: [11, 2], depth: 16, rotary: 4, norms: true },
  'a window across chunks': { lengths: [300, 3], heads: 2, kvHeads: 1, depth: 5, window: 270, blockSize: 16 },
  'a window of one': { lengths: [9], window: 1 },
  'soft cap and sinks': { lengths: [20, 6], softcap: 1.5, sinks: true, blockSize: 256 },
  'all of it': {
    lengths: [270, 41],
    heads: 6,
    kvHeads: 2,
    depth: 18,
    rotary: 8,
    window: 262,
    softcap: 5,
    sinks: true,
    norms: true,
    blockSize: 7,
  },
  'many heads for one of keys': { lengths: [3], heads: 130, kvHeads: 1, depth: 3 },
  'long heads': { lengths: [12], heads: 2, kvHeads: 2, depth: 259 },
}

/** What a format of keys and values may cost, and what it must: a relative difference of y. */
const losses: readonly [PagedCacheType, least: number, most: number][] = [
  ['f16', 1e-5, 1e-3],
  ['bf16', 1e-4, 1e-2],
  ['f8_e4m3', 3e-3, 1e-1],
  ['i8', 3e-4, 2e-2],
]

for (const [engine, run] of runs) {
  t.test(`${engine}: smaller keys and values cost what their rounding does`, t => {
    for (const [cacheDtype, least, most] of losses) {
      const problem = new PagedProblem({ lengths: [40, 9], depth: 16, rotary: 8, sinks: true, cacheDtype })
      const args = problem.call(problem.whole, problem.caches())
      run('pagedAttention', args)
      const expected = problem.expected(problem.whole)
      const loss = maxAbs(expected.map((value, i) => value - args.y[i]!)) / maxAbs(expected)
      t.comment(`${cacheDtype} differs by ${loss.toExponential(1)} of the largest element`)
      t.ok(loss > least && loss < most, `${cacheDtype}: ${loss}`)
      const caches = problem.caches()
      const last = problem.whole.map(([b, , end]): Piece => [b, end - 1, end])
      run(
        'pagedAttention',
        problem.call(
          problem.whole.map(([b, , end]): Piece => [b, 0, end - 1]),
          caches,
        ),
      )
      const step = problem.call(last, caches)
      run('pagedAttention', step)
      const width = args.heads * args.depth
      identical(
        t,
        step.y.slice(0, width),
        args.y.slice(39 * width, 40 * width),
        `${cacheDtype}: a step of decoding`,
      )
    }
    t.end()
  })

  t.test(`${engine} agrees with the formula`, t => {
    for (const [name, one] of Object.entries(options)) {
      const problem = new PagedProblem(one)
      const args = problem.call(problem.whole, problem.caches(), 2)
      run('pagedAttention', args)
      const rows = args.y.length - 2 * args.heads * args.depth
      close(t, args.y.subarray(0, rows), problem.expected(problem.whole), 3e-6, name)
      t.ok(
        args.y.subarray(rows).every(value => value === 0),
        `${name}: padding is 0`,
      )
    }
    t.end()
  })

  t.test(`${engine}: rows do not depend on what they run with`, t => {
    for (const name of ['all of it', 'a window across chunks', 'several sequences']) {
      const problem = new PagedProblem(options[name]!)
      const together = problem.call(problem.whole, problem.caches())
      run('pagedAttention', together)
      const width = together.heads * together.depth
      for (const [b, [, , length]] of problem.whole.entries()) {
        const caches = problem.caches()
        const from = together.starts[b]!
        const cuts = [0, Math.floor(length * 0.6), length - 2, length - 1, length].filter(cut => cut >= 0)
        for (const [i, end] of cuts.entries()) {
          const piece: Piece = [b, i === 0 ? 0 : cuts[i - 1]!, end]
          const args = problem.call([piece], caches, i)
          run('pagedAttention', args)
          const count = (piece[2] - piece[1]) * width
          const expected = together.y.slice((from + piece[1]) * width, (from + piece[2]) * width)
          identical(t, args.y.slice(0, count), expected, `${name}: ${piece}`)
        }
      }
    }
    t.end()
  })

  t.test(`${engine}: slots say where rows are written, and which are padding`, t => {
    const problem = new PagedProblem({ lengths: [6, 3], rotary: 2 })
    const plain = problem.call(problem.whole, problem.caches())
    run('pagedAttention', plain)
    const { blockSize, table, block, starts } = plain
    const slots = Int32Array.from({ length: 9 }, (_, n) => {
      const b = n < 6 ? 0 : 1
      const position = n - starts[b]!
      return block[b * table + Math.floor(position / blockSize)]! * blockSize + (position % blockSize)
    })
    const given = { ...problem.call(problem.whole, problem.caches()), slots }
    run('pagedAttention', given)
    identical(t, given.y, plain.y, 'the same slots')
    t.same(given.keyCache, plain.keyCache, 'the same keys')
    const padded = {
      ...problem.call(problem.whole, problem.caches()),
      slots: slots.map((slot, n) => (n > 6 ? -1 : slot)),
    }
    run('pagedAttention', padded)
    const width = plain.heads * plain.depth
    identical(t, padded.y.slice(0, 7 * width), plain.y.slice(0, 7 * width), 'rows in front of padding')
    t.ok(
      padded.y.slice(7 * width).every(value => value === 0),
      'padding is 0',
    )
    const written = (problem.caches().keyCache as Float32Array).map((value, i) => {
      const slot = Math.floor(i / (plain.kvHeads * plain.depth))
      return slots.subarray(0, 7).includes(slot) ? plain.keyCache[i]! : value
    })
    t.same(padded.keyCache, written, 'padding is not written')
    t.end()
  })

  t.test(`${engine} refuses what leads out of its arrays`, t => {
    const problem = new PagedProblem({ lengths: [9, 5], rotary: 4, sinks: true })
    const call = (): Args => problem.call(problem.whole, problem.caches())
    const wrong: Readonly<Record<string, (args: Args) => Partial<Args>>> = {
      'starts[0] is -1': ({ starts }) => ({ starts: starts.with(0, -1) }),
      'starts[1] is 15': ({ starts }) => ({ starts: starts.with(1, 15) }),
      'starts[2] is 3': ({ starts }) => ({ starts: starts.with(2, 3) }),
      'past[1] is -1': ({ past }) => ({ past: past.with(1, -1) }),
      'positions?': ({ past }) => ({ past: past.with(0, 2 ** 31 - 1) }),
      'block\\[0, 1\\] is -1': ({ block }) => ({ block: block.with(1, -1) }),
      'block\\[1, 0\\] is 7': ({ block, table }) => ({ block: block.with(table, 7) }),
      'slots\\[3\\] is -2': () => ({ slots: new Int32Array(14).map((_, n) => (n === 3 ? -2 : n)) }),
      'slots\\[13\\] is 28': () => ({ slots: new Int32Array(14).map((_, n) => (n === 13 ? 28 : n)) }),
    }
    for (const [message, change] of Object.entries(wrong)) {
      const args = { ...call(), ...change(call()) }
      const pattern = new RegExp(message.replace(/(?<!\\)\[(\d)\]/, '\\[$1\\]'))
      t.throws(() => run('pagedAttention', args), { code: 'ERR_ARGUMENT', message: pattern }, message)
    }
    const unseen = call()
    const past = { ...unseen, block: unseen.block.with(unseen.table + 2, -77) }
    t.doesNotThrow(() => run('pagedAttention', past), 'blocks that no row sees are anything')
    for (const [name, change] of Object.entries({
      kvHeads: { kvHeads: 3 },
      rotary: { rotary: 8 },
      query: { query: new Float32Array(3) },
      valueCache: { valueCache: new Float32Array(3) },
      block: { block: new Int32Array(3) },
    }))
      t.throws(() => run('pagedAttention', { ...call(), ...change }), { code: 'ERR_SHAPE' }, name)
    t.end()
  })
}

t.test('no number of threads changes a bit', t => {
  const problem = new PagedProblem(options['all of it']!)
  const results = [1, 2, 5].map(threads => {
    addon.setThreads(threads)
    const args = problem.call(problem.whole, problem.caches())
    addon.run('pagedAttention', args)
    return args
  })
  for (const { y, keyCache } of results) {
    identical(t, y, results[0]!.y, 'y')
    t.same(keyCache, results[0]!.keyCache, 'keys')
  }
  t.end()
})
