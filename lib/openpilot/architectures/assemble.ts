// assemble.ts: an architecture by its name, with random weights and what openpilot's files say about themselves.
import type { Paced } from '../../core/paced.js'
import type { Graph } from '../../graph/graph.js'
import type { OutputSlice } from '../metadata.js'
import { writeOutputSlices } from '../write-output-slices.js'
import { drivingPolicy, drivingSupercombo, drivingSupercomboSizes, drivingVision } from './driving.js'
import { Network } from './network.js'
import { policySizes } from './policy.js'
import { supercombo, supercomboSizes } from './supercombo.js'
import { visionSizes } from './vision.js'

type Sizes = readonly (readonly [name: string, size: number])[]

/** How a model is made. */
interface Architecture {
  readonly dtype: 'f32' | 'f16'
  readonly opset: number
  /** Adds it to a network and returns its output. */
  readonly add: (net: Network) => string
  /** Sizes of its outputs, in their order. */
  readonly sizes: Sizes
  /** In what it differs from the original; absent where it does not. */
  readonly approximate?: string
}

const architectures = {
  'supercombo-0.8.10': { dtype: 'f32', opset: 9, add: supercombo, sizes: supercomboSizes },
  driving_vision: {
    dtype: 'f16',
    opset: 14,
    add: drivingVision,
    // The exporter writes a slice for padding where there is none, too.
    sizes: [...visionSizes, ['pad', 0]],
    approximate:
      'Inputs and outputs are exact; the numbers of operators and parameters come near the original; widths and wiring are assumed.',
  },
  driving_policy: {
    dtype: 'f16',
    opset: 14,
    add: drivingPolicy,
    sizes: policySizes,
    approximate:
      'Inputs and outputs are exact; the numbers of operators and parameters come near the original; the widths of the heads are assumed.',
  },
  driving_supercombo: {
    dtype: 'f16',
    opset: 14,
    add: drivingSupercombo,
    sizes: drivingSupercomboSizes,
    approximate:
      'Inputs and outputs are exact; the structure between them is assumed, of about as many nodes and parameters as the original.',
  },
} satisfies Readonly<Record<string, Architecture>>

/** See `buildOpenpilotModel` of build.ts. */
export function* assemble(name: keyof typeof architectures, seed: number): Paced<Graph> {
  const { dtype, opset, add, sizes, approximate }: Architecture = architectures[name]
  const net = new Network(dtype)
  const output = add(net)
  const slices = Buffer.from(writeOutputSlices(slicesOf(sizes))).toString('base64')
  const metadata = new Map([
    ['output_slices', slices],
    ['model_checkpoint', `random weights of seed ${seed}`],
    ...(approximate === undefined ? [] : [['approximate', approximate] as const]),
  ])
  const width = sizes.reduce((sum, [, size]) => sum + size, 0)
  return yield* net.finish(output, [1, width], { name, seed, opset, metadata })
}

/** Slices as the exporter writes them: those of padding count from the end. */
function slicesOf(sizes: Sizes): Record<string, OutputSlice> {
  const slices: Record<string, OutputSlice> = {}
  let start = 0
  for (const [name, size] of sizes) {
    slices[name] = name === 'pad' ? { start: 0 - size, end: null } : { start, end: start + size }
    start += size
  }
  return slices
}
