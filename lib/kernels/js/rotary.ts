// rotary.ts: rotary embeddings in plain TypeScript.
import type { KernelArgs } from '../kernels.js'
import { expectFits } from './operands.js'
import type { KernelRows } from './row.js'

/** Rotates pairs of the first elements of each head by the angles of its row. */
function rotary(args: KernelArgs['rotary']): void {
  const { batch, tokens, heads, depth, rotary, interleaved, headsFirst, x, cos, sin, y } = args
  const half = rotary / 2
  const round = y instanceof Float64Array ? (value: number) => value : Math.fround
  for (let n = 0; n < batch; n++)
    for (let t = 0; t < tokens; t++)
      for (let h = 0; h < heads; h++) {
        const from = depth * (headsFirst ? (n * heads + h) * tokens + t : (n * tokens + t) * heads + h)
        y.set(x.subarray(from + rotary, from + depth), from + rotary)
        for (let i = 0; i < half; i++) {
          const [p, q] = interleaved ? [from + 2 * i, from + 2 * i + 1] : [from + i, from + half + i]
          const [c, s] = [cos[(n * tokens + t) * half + i]!, sin[(n * tokens + t) * half + i]!]
          const [a, b] = [x[p]!, x[q]!]
          y[p] = round(a * c) - round(b * s)
          y[q] = round(a * s) + round(b * c)
        }
      }
}

/** Contract of rotary embeddings. */
export const rotaryRows: KernelRows<'rotary'> = {
  rotary: {
    kernel: rotary,
    sizes: ['batch', 'tokens', 'heads', 'depth', 'rotary'],
    check: ({ depth, rotary }) =>
      expectFits(rotary % 2 === 0 && rotary <= depth, 'rotary must be even and at most depth'),
    operands: ({ batch, tokens, heads, depth, rotary }) => ({
      x: batch * tokens * heads * depth,
      cos: (batch * tokens * rotary) / 2,
      sin: (batch * tokens * rotary) / 2,
      y: batch * tokens * heads * depth,
    }),
  },
}
