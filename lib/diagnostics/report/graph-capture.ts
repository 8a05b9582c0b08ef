// graph-capture.ts: rows of a report about CUDA graphs: whether runs that are captured and replayed equal the first one.
import { getConfig } from '../../core/config.js'
import { largestError } from '../../core/difference.js'
import { type Addon, requireAddon } from '../../native.js'
import { gpusWithKernels } from '../verify-devices.js'
import { type ReportRow, row } from './row.js'

const name = 'the captured and the replayed run equal the first'
/** Rows and columns of the layers. */
const [tokens, size] = [33, 65]
/** Relative, of sums of f32 in another order. */
const tolerance = 1e-4

/** Runs a plan three times on each GPU: enqueued, captured as a CUDA graph, replayed. */
export async function graphCaptureRows(): Promise<ReportRow[]> {
  const gpus = await gpusWithKernels()
  const skipped = (device: string, reason: string): ReportRow =>
    row('graph capture', device, name, 'skipped', reason)
  if (gpus.length === 0) return [skipped('machine', 'there is no GPU that kernels run on')]
  const rows: ReportRow[] = []
  for (const { index, cudaIndex } of gpus) {
    const device = `gpu ${index}`
    if (!getConfig().cudaGraphs) {
      rows.push(skipped(device, 'switched off by DGX_SPARK_CUDA_GRAPHS=0'))
      continue
    }
    const problem = await capture(requireAddon(), cudaIndex).catch((error: Error) => error.message)
    rows.push(row('graph capture', device, name, problem ? 'failed' : 'passed', problem || null))
  }
  return rows
}

/** What is wrong with three runs of a plan, or ''. */
async function capture(addon: Addon, ordinal: number): Promise<string> {
  await addon.openDevice(ordinal)
  const wave = (count: number, pace: number): Float32Array =>
    Float32Array.from({ length: count }, (_, i) => Math.sin(pace * i))
  const [x, data] = [wave(tokens * size, 0.37), wave(size * size, 0.71)]
  const [inner, y] = [new Float32Array(tokens * size), new Float32Array(tokens * size)]
  const weight = { format: 'f32', rows: size, cols: size, data }
  const steps = [
    { op: 'linear', args: { weight, tokens, x, y: inner, activation: 'gelu' } },
    { op: 'linear', args: { weight, tokens, x: inner, y } },
  ]
  for (const { op, args } of steps) addon.run(op, args)
  const expected = y.slice()
  const plan = addon.planCreate(steps, ordinal, { scratch: [inner], constant: [data] }, true)
  try {
    const outputs: Float32Array[] = []
    for (let run = 0; run < 3; ++run) {
      y.fill(0)
      await addon.planRun(plan)
      outputs.push(y.slice())
    }
    const problem = addon.planProblem(plan)
    if (problem) return `no run was captured: ${problem}`
    const [first, ...others] = outputs as [Float32Array, ...Float32Array[]]
    const error = largestError(first, expected)
    if (!(error <= tolerance)) return `run 1 differs from the CPU, by ${error.toExponential(1)}`
    const bits = (values: Float32Array): Uint32Array => new Uint32Array(values.buffer)
    const different = others.findIndex(output => {
      const before = bits(first)
      return bits(output).some((value, i) => value !== before[i])
    })
    return different < 0 ? '' : `run ${different + 2} differs from run 1`
  } finally {
    addon.planDispose(plan)
  }
}
