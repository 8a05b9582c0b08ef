// page.js: docs/gpu-model.md, estimates beside what was published and measured.
import { buildOpenpilotModel, openpilotModelNames } from '#lib/openpilot/architectures/build.js'
import { ms } from '../harness.js'
import { costsOf } from './language-models.js'
import { machines } from './machines.js'
import { measuredRows } from './measured.js'
import { published } from './published.js'
import { errorOf, estimate, fit, roofs } from './roofline.js'
import { winogradHead, winogradRows } from './winograd.js'
import { decodeWork, graphWork, launchesPerLayer, prefillWork } from './work.js'

/** @import { Machine } from './machines.js' */
/** @import { Measured } from './measured.js' */
/** @import { Published } from './published.js' */
/** @import { Efficiency, Roof, Work } from './roofline.js' */

/** Errors above it are said on top. */
const largeError = 0.3

const estimatedMachines = [machines.GB10, machines.H100, machines.H200]
const formats = /** @type {const} */ (['BF16', 'F8_E4M3', 'NVFP4', 'Q4_K'])
const contexts = [0, 4096, 32_768]
const prompts = [512, 2048]

/** The net whose arithmetic and bytes are little beside its launches. */
const launchBound = 'driving_policy'

/** @param {string[]} head @param {(string | number)[][]} rows */
const table = (head, rows) =>
  [head, head.map(() => '---'), ...rows].map(cells => `| ${cells.join(' | ')} |`).join('\n')

/** @param {number} part */
const percent = part => `${(100 * part).toFixed(0)} %`

/** @param {number} error */
const signed = error => `${error > 0 ? '+' : ''}${percent(error)}`

/** @param {number} seconds */
const milliseconds = seconds => `${ms(1e3 * seconds)} ms`

/** Efficiencies that fit what was published, and launches of a net. @param {readonly Published[]} rows @param {readonly Measured[]} measured */
export function calibrate(rows, measured) {
  const of = (/** @type {Roof} */ roof) => rows.filter(row => row.isFitted && row.roof === roof)
  const launches = measured.filter(({ shape }) => shape === launchBound)
  return fit({ memory: of('memory'), arithmetic: of('arithmetic'), launches })
}

/** One paragraph for the top of a page; undefined where no error is large. @param {readonly Published[]} rows @param {Efficiency} efficiency */
export function warning(rows, efficiency) {
  const wrong = rows.filter(row => Math.abs(errorOf(row, efficiency)) > largeError)
  if (wrong.length === 0) return undefined
  const names = wrong.map(row => `${row.name}: ${signed(errorOf(row, efficiency))}`)
  return `**Estimates are off by more than ${percent(largeError)} in ${wrong.length} of ${rows.length} published rows: ${names.join('; ')}.**`
}

/** @param {readonly Published[]} rows @param {Efficiency} efficiency */
function calibration(rows, efficiency) {
  const lines = rows.map(row => [
    row.name,
    row.machine.name,
    row.roof,
    milliseconds(row.seconds),
    milliseconds(estimate(row.work, row.machine, efficiency)),
    signed(errorOf(row, efficiency)),
    row.isFitted ? 'fitted' : 'held out',
  ])
  return table(['row', 'machine', 'bound by', 'published', 'estimate', 'error', ''], lines)
}

/** @param {readonly Published[]} rows @param {Efficiency} efficiency */
function summary(rows, efficiency) {
  const errors = rows.map(row => Math.abs(errorOf(row, efficiency)))
  const mean = errors.reduce((sum, error) => sum + error, 0) / errors.length
  return `${rows.length} rows, mean error ${percent(mean)}, largest ${percent(Math.max(...errors))}`
}

/** Tokens a second of a machine by model and format. @param {Machine} machine @param {Efficiency} efficiency */
function languageTable(machine, efficiency) {
  const names = /** @type {const} */ (['Llama 3.2 1B', 'Llama 3.1 8B'])
  const rate = (/** @type {Work} */ work, tokens = 1) =>
    (tokens / estimate(work, machine, efficiency)).toPrecision(3)
  const rows = names.flatMap(name =>
    formats.map(format => {
      const costs = costsOf(name, format)
      return [
        name,
        format,
        ...contexts.map(context => rate(decodeWork(costs, context))),
        ...prompts.map(tokens => Number(rate(prefillWork(costs, tokens), tokens))),
      ]
    }),
  )
  const head = [
    ...['model', 'weights'],
    ...contexts.map(context => `decode behind ${context}`),
    ...prompts.map(tokens => `prefill of ${tokens}`),
  ]
  return `### ${machine.name}\n\n${table(head, rows)}`
}

/** @param {Efficiency} efficiency */
async function netTable(efficiency) {
  const rows = []
  for (const name of openpilotModelNames)
    for (const dtype of /** @type {const} */ (['f32', 'bf16'])) {
      const work = await graphWork(await buildOpenpilotModel(name), dtype)
      const { GB10 } = machines
      const own = roofs(work, GB10, efficiency)
      const bound = /** @type {Roof[]} */ (Object.keys(own)).reduce((a, b) => (own[a] >= own[b] ? a : b))
      const times = estimatedMachines.map(machine => milliseconds(estimate(work, machine, efficiency)))
      const flops = Object.values(work.flops).reduce((sum, count) => sum + count, 0)
      rows.push([
        name,
        dtype,
        `${(flops / 1e9).toFixed(2)} GFLOP`,
        `${(work.bytes / 1e6).toFixed(0)} MB`,
        work.launches,
        ...times,
        bound,
      ])
    }
  const head = [
    'net',
    'dtype',
    'arithmetic',
    'moved',
    'launches',
    ...estimatedMachines.map(({ name }) => name),
  ]
  return table([...head, 'bound on GB10 by'], rows)
}

/** @param {readonly Measured[]} rows @param {Efficiency} efficiency */
function rowTable(rows, efficiency) {
  const lines = rows.map(({ name, shape, dtype, work, seconds }) => {
    const times = estimatedMachines.map(machine => estimate(work, machine, efficiency))
    const [, h100] = /** @type {[number, number, number]} */ (times)
    return [
      name,
      shape,
      dtype,
      ...times.map(milliseconds),
      milliseconds(seconds),
      `${(seconds / h100).toFixed(1)}x`,
    ]
  })
  const head = ['row', 'shape', 'dtype', ...estimatedMachines.map(({ name }) => name)]
  return table([...head, 'measured, H100', 'measured over estimate'], lines)
}

/** @param {Efficiency} efficiency */
const fitted = ({ memory, arithmetic, launchSeconds }) =>
  `Fitted: ${percent(memory)} of the bandwidth, ${percent(arithmetic)} of the rate of products, ${(launchSeconds * 1e6).toFixed(1)} µs a launch.`

/** @param {Efficiency} efficiency */
function modelSection(efficiency) {
  const ceilings = Object.values(machines).map(({ name, bandwidth, flops, source }) => {
    const rates = Object.entries(flops).map(([dtype, rate]) => `${dtype} ${rate / 1e12}`)
    return [name, `${bandwidth / 1e9} GB/s`, rates.join(', '), source]
  })
  return `## The model

A roofline: work takes max(bytes / bandwidth, arithmetic / rate of products, launches · time of a launch). Rates are the ceilings
below times an efficiency, the same for all machines: of memory and products it is fitted to times of other engines on a GB10, so
that an estimate says what a kernel as good as theirs would take. ${launchesPerLayer} launches a layer are ours. Bytes and arithmetic are counted by
the code of \`dgx-spark place\` and \`inspect\`: weights are read once, values written and read once, and blocks of 4 bits multiply in
f16, FP8 in FP8.

${fitted(efficiency)}

${table(['machine', 'memory', 'products, TFLOP/s', 'source'], ceilings)}`
}

/** The page. */
export async function gpuModelPage() {
  const measured = await measuredRows()
  const efficiency = calibrate(published, measured)
  const [used, heldOut] = [published.filter(row => row.isFitted), published.filter(row => !row.isFitted)]
  const alarm = warning(published, efficiency)
  return `# GPU model
${alarm ? `\n${alarm}\n` : ''}
Every figure of this page is an estimate unless a column says that it was measured or published. Written by
\`node bench/gpu-model/main.js docs/gpu-model.md\`; without a file the command prints it.

${modelSection(efficiency)}

## Calibration

Fitted: ${summary(used, efficiency)}. Held out: ${summary(heldOut, efficiency)}.

Published times are those of others on their machines; none was reproduced here. Bytes of a step were published with it; prompts are
taken to have 2,048 tokens. Times of reading prompts by TensorRT-LLM and SGLang are from memory. Experts are left out of prefill:
their bytes were not published. A launch is fitted to ${launchBound} on an H100 alone, and nothing checks it.

${calibration(published, efficiency)}

## Language models

Estimated tokens a second of one text, with keys and values of 2 bytes; all matrices are in the format of the weights. Launches bound
the small model on an H100 and H200: its formats are equally fast there.

${estimatedMachines.map(machine => languageTable(machine, efficiency)).join('\n\n')}

## openpilot's nets

Estimated time of a run, batch 1.

${await netTable(efficiency)}

## Rows of the benchmark

Estimated times of rows that tell what they move, beside an H100 that ran them ([GPU results](gpu-results.md)). A large ratio is
what a kernel as good as those of others would save; a layer with an adapter counts as one launch.

${rowTable(measured, efficiency)}

## Winograd's convolutions

Estimated time of the convolutions of 3 x 3 with stride 1 of one image, in bf16: direct, max(18 · P · C · F / rate, bytes / bandwidth)
for P positions, C channels and F filters, and by F(2 x 2, 3 x 3), which multiplies 2.25 times less. That is three kernels with 8 bytes
for each position and channel and 16 for each position and filter between them, or one with none, of which the transforms cost
nothing. Its blocks compute 16 x 8 positions of 64 filters, full or not, and copy 2.4 KB for each channel from an L2 cache; direct ones
copy 4.6 KB for each channel of 128 positions and 128 filters. What lies between kernels is in that cache where it fits. The caches'
bandwidths (2.5 and 5.5 TB/s) and 2 µs for each further kernel are guesses. "Saved" is where each layer takes what is faster, at the
fitted rate of products and at 70 % of the ceiling.
[Decision 297](decisions/cuda.md#297-winograds-convolutions-in-shared-memory) rests on it.

${table(winogradHead, winogradRows(efficiency))}
`
}
