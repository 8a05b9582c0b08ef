// layers.js: where the time of the nets of the zoo goes on the CPU: kinds of layers, their share of the time, and their rate beside
// that of a GEMM of the same run. Each net is planned for its size and profiled step by step.
//   node bench/layers.js [part of a name and size, such as 'mobilenet-v2 1x224']
import { openKernels } from 'dgx-spark/kernels'
import { optimizedGraph } from '#lib/cli/inspection.js'
import { printTable } from '#lib/cli/table.js'
import { fixSize } from '#lib/core/size.js'
import { fewPositions, isDepthwise, isPointwise } from '#lib/kernels/compact.js'
import { compile, optionsFor } from '#lib/plan/compile.js'
import { Plan } from '#lib/plan/plan.js'
import { parseCommandLine } from './command-line.js'
import { feedsOf, numel } from './feeds.js'
import { threadsOf } from './harness.js'
import { openNet, zoo } from './nets.js'
import { Operands } from './operands.js'

/** @import { StepTime } from 'dgx-spark' */
/** @import { Kernels } from 'dgx-spark/kernels' */
/** @import { ElementArray } from '#lib/core/dtype.js' */
/** @import { Step } from '#lib/plan/program.js' */
/** @import { Shapes } from '#lib/cli/shapes.js' */
/** @import { Package } from './engines.js' */
/** @import { Size } from './feeds.js' */

/** @typedef {Extract<Step, { op: 'conv' }>['args']} ConvArgs */

const arrays = /** @type {Package} */ (
  /** @type {unknown} */ ({
    tensor: (/** @type {ElementArray} */ data, /** @type {number[]} */ shape) => ({ data, shape }),
  })
)

/** Runs of a net, and of the GEMM; what counts is the fastest. */
const runs = 40

/** Channels of an image that a camera or a file gives. */
const fewChannels = 4

/** How an image lies. @param {Pick<ConvArgs, 'out' | 'xCompact' | 'yCompact'>} args */
const layoutOf = ({ out, xCompact, yCompact }) =>
  `${numel(out.map(fixSize)) <= fewPositions ? ', small image' : ''}${xCompact || yCompact ? ', channels last' : ''}`

/** @param {ConvArgs} args */
function convolutionOf(args) {
  const { groups, image, weight, winograd } = args
  const layout = layoutOf(args)
  if (isDepthwise(args)) return `depthwise${layout}`
  if (isPointwise(args)) return `1 x 1${layout}`
  if (fixSize(groups) > 1) return `groups${layout}`
  const taps = numel(args.kernel.map(fixSize))
  if (fixSize(weight.cols) / taps <= fewChannels && numel(image.map(fixSize)) > fewPositions)
    return 'first layer'
  return `k x k${winograd ? ', tiles' : ''}${layout}`
}

/** What kind of layer a step is. @param {Step} step */
function kindOf({ op, args }) {
  if (op === 'conv') return convolutionOf(args)
  return op === 'pointwiseDepthwise' ? `1 x 1, depthwise${layoutOf(args)}` : op
}

/**
 * The steps of a net at a size, and the time of each.
 * @param {Kernels} kernels @param {string} net @param {Size} size @returns {Promise<(StepTime & { kind: string })[]>}
 */
async function profileOf(kernels, net, size) {
  const opened = await openNet(net)
  const inputs = /** @type {Record<string, { data: ElementArray, shape: number[] }>} */ (
    /** @type {unknown} */ (feedsOf(arrays, opened.inputs, size))
  )
  const of = (/** @type {'data' | 'shape'} */ part) =>
    Object.fromEntries(Object.entries(inputs).map(([name, input]) => [name, input[part]]))
  const { graph } = await optimizedGraph(opened.graph, /** @type {Shapes} */ (of('shape')))
  await opened.dispose()
  const { steps } = compile(graph, optionsFor(kernels))
  const plan = await Plan.create(graph, kernels)
  await plan.run(/** @type {Record<string, ElementArray>} */ (of('data')))
  const times = await plan.profile(runs)
  plan.dispose()
  return times.map((time, i) => ({ ...time, kind: kindOf(/** @type {Step} */ (steps[i])) }))
}

/** The rate of the fastest product of 1024 x 1024 x 1024, in GFLOP/s. @param {Kernels} kernels */
async function gemmRate(kernels) {
  const size = 1024
  const operands = new Operands(kernels)
  const data = await operands.put(new Float32Array(size * size).fill(0.5))
  const y = await operands.put(new Float32Array(size * size))
  const weight = { format: /** @type {const} */ ('f32'), rows: size, cols: size, data }
  let fastest = Number.POSITIVE_INFINITY
  for (let i = 0; i < runs; i++) {
    const start = performance.now()
    await kernels.run('linear', { weight, tokens: size, x: data, y })
    fastest = Math.min(fastest, performance.now() - start)
  }
  return (2 * size ** 3) / fastest / 1e6
}

/** @param {readonly (StepTime & { kind: string })[]} steps @param {number} gemm GFLOP/s */
function printKinds(steps, gemm) {
  const total = steps.reduce((sum, { ms }) => sum + ms, 0)
  const kinds = new Map(steps.map(({ kind }) => [kind, { count: 0, ms: 0, flops: 0 }]))
  for (const { kind, ms, flops } of steps) {
    const sums = kinds.get(kind)
    if (sums) Object.assign(sums, { count: sums.count + 1, ms: sums.ms + ms, flops: sums.flops + flops })
  }
  printTable(
    ['layers', 'steps', 'ms', 'share', 'GFLOP/s', 'of GEMM'],
    [...kinds]
      .sort(([, a], [, b]) => b.ms - a.ms)
      .map(([kind, { count, ms, flops }]) => {
        const rate = flops / ms / 1e6
        const rates = flops > 0 ? [rate.toFixed(0), `${((100 * rate) / gemm).toFixed(0)} %`] : ['', '']
        return [kind, `${count}`, ms.toFixed(3), `${((100 * ms) / total).toFixed(1)} %`, ...rates]
      }),
    [1, 2, 3, 4, 5],
  )
}

async function main() {
  const { positionals } = parseCommandLine({ allowPositionals: true })
  const [pattern = ''] = positionals
  const wanted = zoo.filter(({ net, size }) => `${net} ${Object.values(size).join('x')}`.includes(pattern))
  if (wanted.length === 0) {
    console.error(`no net of the zoo has '${pattern}' in its name and size: see zoo of bench/nets.json`)
    process.exit(2)
  }
  const kernels = await openKernels({ backend: 'cpu' })
  const threads = threadsOf()
  const gemm = await gemmRate(kernels)
  console.log(`threads: ${threads}, GEMM of 1024 x 1024 x 1024: ${gemm.toFixed(0)} GFLOP/s`)
  for (const { net, size } of wanted) {
    const steps = await profileOf(kernels, net, size)
    const total = steps.reduce((sum, { ms }) => sum + ms, 0)
    console.log(`\n${net} ${Object.values(size).join('x')}: ${total.toFixed(2)} ms in ${steps.length} steps`)
    printKinds(steps, gemm)
  }
}

await main()
