// Linear layers of experts: each row is what a linear layer with the weight of its expert makes of that row alone.
import t from 'tap'
import { openCpuKernels } from '#lib/kernels/cpu.js'
import { holdWeight } from '#lib/kernels/hold-weight.js'
import { jsKernels } from '#lib/kernels/js/js.js'
import type { KernelArgs, Weight } from '#lib/kernels/kernels.js'
import { requireAddon } from '#lib/native.js'
import { decodeWeight } from '#lib/weights/encode.js'
import { formatInfo, linearFormats } from '#lib/weights/formats.js'
import { close, identical } from '../fixtures/close.js'
import { randomWeight } from '../fixtures/random-weight.js'
import { randomGenerator, uniform } from '../fixtures/values/random.js'

const addon = requireAddon()
const cpu = openCpuKernels()
t.teardown(() => addon.setThreads(0))

type Args = KernelArgs['expertLinear']

/** Tokens, choices of each, experts, out, in. */
const sizes = [
  [1, 1, 1, 1, 1],
  [5, 3, 4, 33, 31],
  [1, 4, 9, 96, 272],
  [70, 2, 3, 70, 531],
  [0, 2, 3, 5, 16],
  [3, 0, 2, 5, 16],
  [3, 2, 2, 0, 16],
  [3, 2, 2, 5, 0],
] as const

interface Options {
  readonly perChoice?: boolean
  readonly bias?: boolean
}

/** Arguments with random operands. Experts at the end have no rows, and a token may choose one of them twice. */
function argsOf(weight: Weight, [tokens, choices, experts]: readonly number[], options: Options = {}): Args {
  const random = randomGenerator(weight.cols + tokens!)
  const [n, k] = [tokens!, choices!]
  const used = Math.max(experts! - 1, 1)
  return {
    weight,
    experts: experts!,
    tokens: n,
    choices: k,
    perChoice: options.perChoice,
    x: uniform(random, n * (options.perChoice ? k : 1) * weight.cols),
    choice: BigInt64Array.from({ length: n * k }, () => BigInt(Math.floor(random() * used))),
    bias: options.bias ? uniform(random, weight.rows) : undefined,
    y: new Float32Array((n * k * weight.rows) / experts!).fill(Number.NaN),
  }
}

/** The same by a linear layer for each row. `values` are those of the weight. */
function rowByRow(args: Args, values: Float32Array): Float32Array {
  const { weight, experts, tokens, choices, perChoice, x, choice, bias, y } = args
  const { cols } = weight
  const rows = weight.rows / experts
  const result = new Float32Array(y.length)
  for (let i = 0; i < tokens * choices; i++) {
    const expert = Number(choice[i])
    const from = (perChoice ? i : Math.floor(i / choices)) * cols
    addon.run('linear', {
      weight: {
        format: 'f32',
        rows,
        cols,
        data: values.slice(expert * rows * cols, (expert + 1) * rows * cols),
      },
      tokens: 1,
      x: x.slice(from, from + cols),
      bias: bias?.slice(expert * rows, (expert + 1) * rows),
      y: result.subarray(i * rows, (i + 1) * rows),
    })
  }
  return result
}

for (const format of linearFormats) {
  t.test(format, async t => {
    for (const size of sizes) {
      const [, , experts, out, inner] = size
      const { block } = formatInfo(format)
      const cols = Math.ceil(inner / block) * block
      const weight = randomWeight(randomGenerator(cols), format, experts * out, cols)
      const panels = await holdWeight(cpu, weight)
      const values = decodeWeight(weight)
      for (const options of [{}, { perChoice: true }, { bias: true }]) {
        const args = argsOf(weight, size, options)
        const name = `${size} ${JSON.stringify(options)}`
        const expected = rowByRow(args, values)
        for (const [layout, stored] of Object.entries({ rows: weight, panels }))
          for (const threads of [1, 3]) {
            addon.setThreads(threads)
            const y = args.y.slice()
            cpu.runSync('expertLinear', { ...args, weight: stored, y })
            identical(t, y, expected, `${name} in ${layout} on ${threads} threads`)
          }
        await jsKernels.run('expertLinear', args)
        close(t, args.y, expected, 2e-6, `${name} in TypeScript`)
      }
    }
  })
}

t.test('what does not fit is refused', async t => {
  const weight = randomWeight(randomGenerator(1), 'f32', 6, 4)
  for (const kernels of [cpu, jsKernels]) {
    const refused = (changes: Partial<Args>, error: { code: string; message: string | RegExp }): void => {
      const args = { ...argsOf(weight, [3, 2, 3]), ...changes }
      t.throws(() => kernels.runSync('expertLinear', args), error)
    }
    for (const wrong of [3n, -1n, 2n ** 62n])
      refused(
        { choice: BigInt64Array.of(0n, 1n, 2n, 0n, 0n, wrong) },
        { code: 'ERR_ARGUMENT', message: `a choice is ${wrong}, not in [0, 3)` },
      )
    refused({ experts: 4 }, { code: 'ERR_SHAPE', message: /weight\.rows is 6, not a multiple of experts, 4/ })
    refused({ experts: 0 }, { code: 'ERR_SHAPE', message: /not a multiple of experts, 0/ })
    refused({ x: new Float32Array(11) }, { code: 'ERR_SHAPE', message: /x/ })
    refused({ perChoice: true }, { code: 'ERR_SHAPE', message: /x/ })
    refused({ bias: new Float32Array(5) }, { code: 'ERR_SHAPE', message: /bias/ })
    refused({ choice: new BigInt64Array(5) }, { code: 'ERR_SHAPE', message: /choice/ })
    refused({ choice: new Int32Array(6) as never }, { code: 'ERR_DTYPE', message: /choice/ })
    refused({ y: new Float32Array(11) }, { code: 'ERR_SHAPE', message: /y/ })
  }
})
