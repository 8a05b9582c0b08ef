// The arena of a plan: buffers that are alive at the same time never share memory.
import t from 'tap'
import { atOnce } from '#lib/core/paced.js'
import { fixSize, multiply } from '#lib/core/size.js'
import { SizeScope } from '#lib/core/size-scope.js'
import { layOut, shareInPlace } from '#lib/plan/arena.js'
import { Buffer, operandsOf, type Step } from '#lib/plan/program.js'
import { randomGenerator } from '../fixtures/values/random.js'

const copy = (src: Buffer, dst: Buffer): Step => ({
  op: 'copyStrided',
  args: {
    dtype: 'f32',
    shape: [1],
    srcOffset: 0,
    dstOffset: 0,
    srcStrides: [1],
    dstStrides: [1],
    src: src.read(),
    dst: dst.write(),
  },
})
const unary = (x: Buffer, y: Buffer): Step => ({
  op: 'unary',
  args: { fn: 'exp', dtype: 'f32', count: x.count, x: x.read(), y: y.write() },
})
const arena = (count: number): Buffer => new Buffer('f32', count, 'arena')

/** First and last step that uses each buffer of the arena. */
function lives(steps: readonly Step[]): Map<Buffer, [number, number]> {
  const lives = new Map<Buffer, [number, number]>()
  steps.forEach((step, at) => {
    for (const { buffer } of operandsOf(step.args)) {
      if (buffer.storage === 'arena') lives.set(buffer, [lives.get(buffer)?.[0] ?? at, at])
    }
  })
  return lives
}

t.test('random programs', t => {
  for (let seed = 1; seed <= 60; seed++) {
    const random = randomGenerator(seed)
    const integer = (limit: number): number => Math.floor(random() * limit)
    const buffers = [arena(1 + integer(500))]
    const steps: Step[] = []
    for (let i = 0; i < 40; i++) {
      const from = buffers[Math.max(0, buffers.length - 1 - integer(6))]!
      const to = arena(integer(3) ? fixSize(from.count) : 1 + integer(500))
      steps.push(to.count === from.count && integer(2) ? unary(from, to) : copy(from, to))
      buffers.push(to)
    }
    atOnce(shareInPlace(steps))
    // Half of them as if they were too long to compare all buffers with each other.
    const isLong = seed % 2 === 0
    const { offsets, arenaBytes, lowerBound } = atOnce(layOut(steps, undefined, isLong ? 0 : undefined))
    const placed = [...lives(steps)].map(([buffer, [first, last]]) => ({
      start: offsets.get(buffer)!,
      end: offsets.get(buffer)! + 4 * fixSize(buffer.count),
      first,
      last,
    }))
    for (const [i, a] of placed.entries()) {
      t.equal(a.start % 64, 0)
      t.ok(a.end <= arenaBytes)
      for (const b of placed.slice(i + 1)) {
        const together = a.first <= b.last && b.first <= a.last
        if (together && a.start < b.end && b.start < a.end) t.fail(`seed ${seed}: two buffers share memory`)
      }
    }
    t.ok(
      lowerBound <= arenaBytes && arenaBytes <= (isLong ? 5 : 1.5) * lowerBound,
      `${arenaBytes} of at least ${lowerBound} bytes`,
    )
  }
  t.end()
})

t.test('elementwise steps work in place where nobody reads the operand later', t => {
  const [a, b, c, d] = [arena(100), arena(100), arena(100), arena(50)]
  const steps = [copy(arena(1), a), unary(a, b), unary(b, c), copy(b, d), unary(c, arena(100))]
  atOnce(shareInPlace(steps))
  t.equal(b.root, a, 'a is dead after its step')
  t.not(c.root, a, 'b is read later')
  t.equal(atOnce(layOut(steps)).lowerBound, 448 + 448 + 256)
  t.end()
})

t.test('outputs and state have memory of their own', t => {
  const output = new Buffer('f32', 10, 'output')
  const steps = [unary(arena(10), output)]
  atOnce(shareInPlace(steps))
  t.equal(output.root, output)
  t.equal(atOnce(layOut(steps)).arenaBytes, 64)
  t.end()
})

t.test('sizes that follow each other share a layout', t => {
  const scope = new SizeScope()
  const size = scope.symbol('n', 40)
  const [x, y, z] = [
    new Buffer('f32', size, 'arena'),
    arena(100),
    new Buffer('f32', multiply(3, size), 'arena'),
  ]
  const steps = [copy(x, y), copy(y, z), copy(x, z)]
  const layoutFor = (n: number) => atOnce(layOut(steps, scope.evaluate([n])!))
  t.equal(layoutFor(40), layoutFor(41))
  t.not(layoutFor(40), layoutFor(400))
  for (const n of [2, 3, 17, 100, 129, 4001]) {
    const { offsets, arenaBytes } = layoutFor(n)
    const ends = [4 * n, 400, 12 * n]
    const spans = [x, y, z].map(
      (buffer, i) => [offsets.get(buffer)!, offsets.get(buffer)! + ends[i]!] as const,
    )
    for (const [i, [start, end]] of spans.entries()) {
      t.equal(start % 64, 0)
      t.ok(end <= arenaBytes)
      for (const [from, to] of spans.slice(i + 1))
        t.ok(end <= from || to <= start, `${n}: all are alive at once`)
    }
  }
  t.end()
})

t.test('a linear layer writes over its residual, or over its gate, but not over its rows', t => {
  const weight = { format: 'f32' as const, rows: 4, cols: 4, data: new Buffer('f32', 16, 'constant').read() }
  const linear = (x: Buffer, residual: Buffer | undefined, gate: Buffer, y: Buffer): Step => ({
    op: 'linear',
    args: { weight, tokens: 4, x: x.read(), residual: residual?.read(), gate: gate.read(), y: y.write() },
  })
  const [x, gate, y, z] = [arena(16), arena(16), arena(16), arena(16)] as const
  const fill = [unary(new Buffer('f32', 16, 'constant'), x), unary(x, gate)]
  atOnce(shareInPlace([...fill, linear(x, undefined, gate, y), linear(y, x, y, z)]))
  t.equal(y.root, gate, 'over its gate')
  t.equal(z.root, x, 'over its residual, not over the gate that its rows are')
  t.end()
})
