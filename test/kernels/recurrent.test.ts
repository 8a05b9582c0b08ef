// Recurrent layers: the CPU against TypeScript, and that a sample depends on neither instruction set, threads nor batch.
import t from 'tap'
import { jsKernels } from '#lib/kernels/js/js.js'
import type { KernelArgs } from '#lib/kernels/kernels.js'
import { requireAddon } from '#lib/native.js'
import { packWeight, panelSizes } from '#lib/weights/panels.js'
import { scriptResult } from '../fixtures/child.js'
import { identical, within } from '../fixtures/close.js'
import { randomGenerator, uniform } from '../fixtures/values/random.js'

type Args = KernelArgs['recurrent']

const addon = requireAddon()
const random = randomGenerator(31)
const numbers = (count: number): Float32Array => uniform(random, count)
const cells = [
  { cell: 'rnn', gates: 1, functions: ['tanh'] },
  { cell: 'gru', gates: 3, functions: ['sigmoid', 'tanh'] },
  { cell: 'lstm', gates: 4, functions: ['sigmoid', 'tanh', 'tanh'] },
] as const
const rare = ['hard_sigmoid', 'softsign', 'leaky_relu'] as const

interface Case {
  readonly directions: number
  readonly steps: number
  readonly batch: number
  readonly hidden: number
  readonly reverse?: boolean
  /** Every option, and functions that are not compiled for themselves. */
  readonly whole: boolean
}

const cases: Case[] = [
  { directions: 1, steps: 5, batch: 3, hidden: 7, whole: false },
  { directions: 1, steps: 5, batch: 9, hidden: 7, reverse: true, whole: true },
  { directions: 2, steps: 4, batch: 1, hidden: 33, whole: false },
  { directions: 2, steps: 6, batch: 6, hidden: 19, whole: true },
  { directions: 1, steps: 3, batch: 5, hidden: 77, reverse: true, whole: false },
  { directions: 2, steps: 3, batch: 2, hidden: 3, whole: true },
  { directions: 1, steps: 0, batch: 2, hidden: 5, whole: true },
]

function argsOf(
  { cell, gates, functions }: (typeof cells)[number],
  { directions, steps, batch, hidden, reverse = false, whole }: Case,
): Args {
  const [width, states] = [gates * hidden, directions * batch * hidden]
  const lstm = cell === 'lstm'
  const parameters = { alpha: 0.3, beta: 0.4 }
  const own = functions.map((fn, i) => ({ fn: whole ? rare[i]! : fn, ...parameters }))
  return {
    cell,
    directions,
    steps,
    batch,
    hidden,
    reverse,
    linearBeforeReset: whole,
    coupleGates: false,
    clip: whole ? 0.3 : undefined,
    functions: Array.from({ length: directions }, () => own).flat(),
    gates: numbers(steps * directions * batch * width),
    recurrence: numbers(directions * hidden * width),
    ...(whole && {
      bias: numbers(directions * width),
      initialH: numbers(states),
      lengths: Int32Array.from({ length: batch }, (_, n) => (3 * n) % (steps + 1)),
    }),
    ...(whole && lstm && { peepholes: numbers(directions * 3 * hidden), initialC: numbers(states) }),
    y: new Float32Array(steps * states).fill(7),
    lastH: new Float32Array(states),
    lastC: lstm ? new Float32Array(states) : undefined,
    scratch: new Float32Array(directions * batch * (gates + 1) * hidden),
  }
}

const results = ['y', 'lastH', 'lastC'] as const
const fresh = (args: Args): Args => ({
  ...args,
  ...Object.fromEntries(results.map(name => [name, args[name]?.slice()])),
  scratch: args.scratch.slice(),
})

t.test('every cell, both engines', t => {
  for (const layer of cells) {
    for (const sizes of cases) {
      const args = argsOf(layer, sizes)
      const [js, cpu] = [fresh(args), fresh(args)]
      jsKernels.runSync('recurrent', js)
      addon.run('recurrent', { ...cpu })
      for (const name of results) {
        if (js[name])
          within(t, cpu[name]!, js[name], () => 1e-5, `${layer.cell} ${JSON.stringify(sizes)} ${name}`)
      }
    }
  }
  t.end()
})

t.test('packed weights give the same bits', t => {
  for (const layer of cells) {
    for (const sizes of cases.filter(({ steps }) => steps > 0)) {
      const args = argsOf(layer, sizes)
      const { directions, hidden } = sizes
      const rows = layer.gates * hidden
      const size = panelSizes({ format: 'f32', rows, cols: hidden }).data
      const panels = new Float32Array(directions * size)
      for (let d = 0; d < directions; d++) {
        const data = Float32Array.from({ length: rows * hidden }, (_, i) => {
          return args.recurrence[(d * hidden + (i % hidden)) * rows + Math.floor(i / hidden)]!
        })
        packWeight({ format: 'f32', rows, cols: hidden, data }, panels.subarray(d * size, (d + 1) * size))
      }
      for (const run of [addon.run.bind(addon), jsKernels.runSync.bind(jsKernels)] as const) {
        const [plain, packed] = [fresh(args), fresh(args)]
        run('recurrent', { ...plain })
        run('recurrent', { ...packed, packed: true, recurrence: panels })
        identical(t, packed.y!, plain.y!, `${layer.cell} ${JSON.stringify(sizes)}`)
      }
    }
  }
  t.end()
})

t.test('coupled gates, without y', t => {
  const args = { ...argsOf(cells[2], cases[1]!), coupleGates: true, y: undefined }
  const [js, cpu] = [fresh(args), fresh(args)]
  jsKernels.runSync('recurrent', js)
  addon.run('recurrent', { ...cpu })
  within(t, cpu.lastC!, js.lastC!, () => 1e-5, 'c')
  within(t, cpu.lastH, js.lastH, () => 1e-5, 'h')
  t.end()
})

t.test('a sample alone gives what it gives in a batch', t => {
  for (const layer of cells) {
    const args = argsOf(layer, { directions: 1, steps: 4, batch: 7, hidden: 37, whole: false })
    const whole = fresh(args)
    addon.run('recurrent', { ...whole })
    const width = layer.gates * 37
    for (let n = 0; n < 7; n++) {
      const lone = argsOf(layer, { directions: 1, steps: 4, batch: 1, hidden: 37, whole: false })
      const gates = Float32Array.from({ length: 4 * width }, (_, i) => {
        return args.gates[(Math.floor(i / width) * 7 + n) * width + (i % width)]!
      })
      addon.run('recurrent', { ...lone, gates, recurrence: args.recurrence })
      identical(t, lone.lastH, whole.lastH.slice(n * 37, (n + 1) * 37), `${layer.cell}, sample ${n}`)
    }
  }
  t.end()
})

t.test('bad arguments', t => {
  const args = argsOf(cells[2], cases[2]!)
  const refused = (change: Partial<Args>, message: RegExp): void => {
    for (const run of [
      () => addon.run('recurrent', { ...args, ...change }),
      () => jsKernels.runSync('recurrent', { ...args, ...change }),
    ]) {
      t.throws(run, { code: 'ERR_SHAPE', message })
    }
  }
  refused({ directions: 3 }, /directions is 3/)
  refused({ functions: args.functions.slice(1) }, /5 functions; this layer has 6/)
  refused({ scratch: new Float32Array(1) }, /scratch/)
  t.end()
})

/** Prints a digest of a large layer of each cell, large enough for several threads. */
const script = `
import { createHash } from 'node:crypto'
import { openKernels } from '#lib/kernels/open.js'
const kernels = await openKernels({ backend: 'cpu' })
let state = 88172645
const numbers = count => Float32Array.from({ length: count }, () => {
  state = (Math.imul(state, 1664525) + 1013904223) >>> 0
  return state / 2 ** 31 - 1
})
const hash = createHash('sha256')
for (const [cell, gates, functions] of [['rnn', 1, ['tanh']], ['gru', 3, ['sigmoid', 'tanh']], ['lstm', 4, ['sigmoid', 'tanh', 'tanh']]]) {
  for (const batch of [1, 7]) {
    const [directions, steps, hidden] = [2, 23, 83]
    const width = gates * hidden
    const states = directions * batch * hidden
    const y = new Float32Array(steps * states)
    await kernels.run('recurrent', {
      cell, directions, steps, batch, hidden, reverse: false, linearBeforeReset: false, coupleGates: false,
      functions: [...functions, ...functions].map(fn => ({ fn })), gates: numbers(steps * directions * batch * width),
      recurrence: numbers(directions * hidden * width), bias: numbers(directions * width), y,
      lastH: new Float32Array(states), lastC: cell === 'lstm' ? new Float32Array(states) : undefined,
      scratch: new Float32Array(states * (gates + 1)),
    })
    hash.update(new Uint8Array(y.buffer))
  }
}
console.log(JSON.stringify(hash.digest('hex')))
`

t.test('every instruction set and any number of threads give the same bits', async t => {
  const plain = await scriptResult(script, { DGX_SPARK_CPU_ISA: 'plain', DGX_SPARK_THREADS: '1' })
  for (const isa of ['avx2', 'avx512']) {
    t.equal(await scriptResult(script, { DGX_SPARK_CPU_ISA: isa }), plain, isa)
  }
  t.equal(await scriptResult(script, { DGX_SPARK_THREADS: '3' }), plain, 'three threads')
})
