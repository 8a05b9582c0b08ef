// expert-linear.ts: linear layers of experts in plain TypeScript.
import { SparkError } from '../../core/errors.js'
import type { Paced } from '../../core/paced.js'
import { linearFormats } from '../../weights/formats.js'
import type { KernelArgs } from '../kernels.js'
import { dot } from './linear.js'
import { expectFits } from './operands.js'
import { elements, type KernelRows, optional } from './row.js'
import { rowReader } from './weight-rows.js'

type Args = KernelArgs['expertLinear']

/** y[n, j, o] = Σ_i x[n, i] W[e, o, i] + bias[e, o] with e = choice[n, j] */
function* expertLinear(args: Args): Paced<void> {
  const { weight, experts, tokens, choices, perChoice, x, choice, bias, y } = args
  expectChoices(args)
  const { cols } = weight
  const out = weight.rows / experts
  const row = rowReader(weight)
  const all = Array.from({ length: tokens * choices }, (_, i) => i)
  for (let expert = 0; expert < experts; expert++) {
    const chosen = all.filter(i => choice[i] === BigInt(expert))
    for (let o = 0; o < out && chosen.length > 0; o++) {
      yield
      const at = expert * out + o
      const w = row(at)
      for (const i of chosen) {
        const start = (perChoice ? i : Math.floor(i / choices)) * cols
        y[i * out + o] = dot(x, start, w, 0, cols) + (bias ? bias[at]! : 0)
      }
    }
  }
}

function expectChoices({ experts, tokens, choices, choice }: Args): void {
  const wrong = choice.subarray(0, tokens * choices).find(expert => expert < 0n || expert >= BigInt(experts))
  if (wrong !== undefined)
    throw new SparkError('ERR_ARGUMENT', `a choice is ${wrong}, not in [0, ${experts})`)
}

/** Contract of linear layers of experts. */
export const expertLinearRows: KernelRows<'expertLinear'> = {
  expertLinear: {
    kernel: expertLinear,
    sizes: ['experts', 'tokens', 'choices'],
    formats: linearFormats,
    check: ({ weight: { rows }, experts }) =>
      expectFits(
        experts > 0 && rows % experts === 0,
        `weight.rows is ${rows}, not a multiple of experts, ${experts}`,
      ),
    operands: ({ weight: { rows, cols }, experts, tokens, choices, perChoice }) => ({
      x: tokens * (perChoice ? choices : 1) * cols,
      choice: elements('i64', tokens * choices),
      bias: optional(rows),
      y: tokens * choices * (rows / experts),
    }),
  },
}
