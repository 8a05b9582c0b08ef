// plans.js: bytes that the plan of a decoder moves for one token, and those of activations and the launches of a layer for a
// prompt, counted by the operands of its steps.
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import path from 'node:path'
import { optimizedGraph } from '#lib/cli/inspection.js'
import { elementBytes } from '#lib/core/dtype.js'
import { Pacer } from '#lib/core/paced.js'
import { namedStates } from '#lib/graph/edit.js'
import { compile } from '#lib/plan/compile.js'
import { readModel } from '#lib/text/files/model-files.js'
import { engineGraph } from '#lib/text/generation/decoder-engine.js'
import { writeRandomFp8Llama } from '../random-fp8-llama.js'
import { writeRandomLlama } from '../random-llama.js'

/** @import { Operand, Program, Step } from '#lib/plan/program.js' */
/** @import { Decoder } from '#lib/text/architectures/decoder.js' */
/** @import { LlamaFormat, LlamaSizes } from '../random-llama.js' */

/**
 * @typedef {object} Traffic
 * @property {number} moved bytes that the steps read and write, each operand once
 * @property {number} minimum bytes of weights, and of the keys and values that a token sees
 * @property {number} steps
 */

const blockSize = 16
const cacheType = 'bf16'

/** The operands of a step. @param {object} args @returns {[name: string, operand: Operand][]} */
const operandsOf = args =>
  Object.entries(args).flatMap(([name, value]) => {
    if (value === null || typeof value !== 'object' || ArrayBuffer.isView(value)) return []
    return 'access' in value ? [/** @type {[string, Operand]} */ ([name, value])] : operandsOf(value)
  })

/** Elements of an operand that a step for one token reads or writes, where its kernel does not come to all of them. @param {Step} step @param {string} name @param {number} context */
function elementsOf({ op, args }, name, context) {
  if (op === 'gatherRows' && name === 'data') return Number(args.weight.cols)
  if (op !== 'pagedAttention' || !name.endsWith('Cache')) return undefined
  return (context + 1) * Number(args.kvHeads) * Number(args.depth)
}

/** @param {Program} program @param {number} context tokens in front of the one that is read @returns {Traffic} */
export function trafficOf({ steps }, context) {
  let [moved, minimum] = [0, 0]
  for (const step of steps)
    for (const [name, operand] of operandsOf(step.args)) {
      const bytes = elementBytes(
        operand.buffer.dtype,
        elementsOf(step, name, context) ?? Number(operand.count),
      )
      moved += bytes
      if (['constant', 'state'].includes(operand.buffer.storage)) minimum += bytes
    }
  return { moved, minimum, steps: steps.length }
}

/** The plan of a GPU for tokens of one text behind `context` others. @param {Decoder} decoder @param {number} context @param {number} [tokens] @param {'f32' | 'nvfp4'} [activations] */
async function planOf(decoder, context, tokens = 1, activations = 'f32') {
  const table = 2 ** Math.ceil(Math.log2(Math.max(16, (context + tokens) / blockSize)))
  const graph = engineGraph(decoder, { activations, blocks: table, blockSize, cacheType })
  const one = Object.fromEntries(['long', 'past', 'rows'].map(name => [name, [1]]))
  const shapes = { ...one, tokens: [tokens], positions: [tokens], starts: [2], blocks: [1, table] }
  const { graph: optimized } = await optimizedGraph(graph, shapes, 'bf16')
  const updates = namedStates(graph.inputs, graph.outputs)
  const next = new Set(updates.values())
  const outputs = optimized.outputs.filter(({ name }) => !next.has(name))
  const states = new Map([...updates.keys()].map(name => [name, { axis: undefined, capacity: 0 }]))
  return compile(
    { ...optimized, updates, outputs },
    { backend: 'cuda', mode: 'bf16', bf16Support: 'matrix', states },
  )
}

/** Rows up to which a product on tensor cores rounds its left operand itself: kTokens of native/kernels/gemm/blocks.h. */
const fewRows = 16

/** Rows from which on attention has no chunks to merge: kFewTokens of native/backend/cuda/attention/paged_attention.cc. */
const fewTokens = 64

/** Rows in f32 that are packed to 16 bits in front of a product. @param {Step} step @returns {Operand | undefined} */
const packedRows = ({ op, args }) =>
  op === 'linear' &&
  ['bf16', 'f16'].includes(args.compute ?? 'f32') &&
  args.xDtype === undefined &&
  Number(args.tokens) > fewRows
    ? args.x
    : undefined

/** Rows in f32 that are rounded to NVFP4 in front of a product. @param {Step} step @returns {Operand | undefined} */
const roundedRows = ({ op, args }) =>
  op === 'linear' && args.compute === 'nvfp4' && args.xDtype === undefined ? args.x : undefined

/** @param {Step} step */
function launchesOf(step) {
  if (step.op === 'pagedAttention') return Number(step.args.tokens) > fewTokens ? 2 : 3
  return packedRows(step) || roundedRows(step) ? 2 : 1
}

/** Bytes of rows in NVFP4: codes, scales of blocks of 16, and one of a row, left out as small. @param {Operand} operand */
const codeBytes = ({ count }) => (Number(count) * 9) / 16

/** Bytes of activations that a step reads and writes, those of its packed rows included. @param {Step} step */
function activationBytesOf(step) {
  const { xDtype = 'f32', xRounded = undefined } = step.op === 'linear' ? step.args : {}
  let bytes = 0
  for (const [name, operand] of operandsOf(step.args)) {
    const { buffer, count } = operand
    if (['constant', 'state'].includes(buffer.storage)) continue
    const isCodes = name.endsWith('Rounded') || (name === 'x' && xDtype === 'nvfp4')
    bytes += isCodes ? codeBytes(operand) : elementBytes(buffer.dtype, Number(count))
  }
  const [packed, rounded] = [packedRows(step), roundedRows(step)]
  if (packed) bytes += elementBytes('bf16', 2 * Number(packed.count))
  // A product reads what it has rounded; where others do so, too, the store is an operand already.
  if (rounded) bytes += codeBytes(rounded) * (xRounded ? 1 : 2)
  return bytes
}

/** Launches, and bytes of activations, of the steps of a program. @param {Program} program */
export const prefillOf = ({ steps }) => ({
  launches: steps.reduce((sum, step) => sum + launchesOf(step), 0),
  bytes: steps.reduce((sum, step) => sum + activationBytesOf(step), 0),
})

/** What {@link readModel} reads. @param {string} folder @param {LlamaFormat | 'FP8'} format @param {LlamaSizes} sizes */
export async function writeModel(folder, format, sizes) {
  if (format === 'FP8') {
    await writeRandomFp8Llama(folder, sizes)
    return folder
  }
  const file = path.join(folder, 'model.gguf')
  await writeRandomLlama(file, format, sizes)
  return file
}

/** What `use` makes of a random model. @template T @param {LlamaFormat | 'FP8'} format @param {LlamaSizes} sizes @param {(decoder: Decoder) => Promise<T>} use */
async function withDecoder(format, sizes, use) {
  const folder = await mkdtemp(path.join(tmpdir(), 'dgx-spark-plans-'))
  try {
    const model = await readModel(await writeModel(folder, format, sizes), new Pacer())
    if (model.kind !== 'decoder') throw new Error(`a llama in ${format} is no decoder`)
    return await use(model.decoder)
  } finally {
    await rm(folder, { recursive: true })
  }
}

/** @param {LlamaFormat | 'FP8'} format @param {LlamaSizes} sizes @param {readonly number[]} contexts @returns {Promise<Traffic[]>} */
export const decodeTraffic = (format, sizes, contexts) =>
  withDecoder(format, sizes, async decoder => {
    /** @type {Traffic[]} */
    const all = []
    for (const context of contexts) all.push(trafficOf(await planOf(decoder, context), context))
    return all
  })

/** A line for each number of tokens of a prompt. @param {LlamaFormat} format @param {LlamaSizes} sizes @param {readonly number[]} prompts @param {'f32' | 'nvfp4'} [activations] */
export const prefillTraffic = (format, sizes, prompts, activations = 'f32') =>
  withDecoder(format, sizes, async decoder => {
    /** @type {ReturnType<typeof prefillOf>[]} */
    const all = []
    for (const tokens of prompts) all.push(prefillOf(await planOf(decoder, 0, tokens, activations)))
    return all
  })

/** A layer of Llama 3.1 8B, with little around it. */
export const layer = {
  ...{ hidden: 4096, inner: 14_336, layers: 1, heads: 32, kvHeads: 8, headSize: 128 },
  vocabulary: 320,
}

/** What a token moves in a layer of Llama 3.1 8B, a line for each format and number of tokens in front of it. */
export async function trafficTable() {
  const contexts = [0, 4096, 32_768]
  const lines = ['format  behind      moved bytes    minimum bytes   ratio  steps']
  for (const format of /** @type {const} */ (['BF16', 'FP8', 'NVFP4', 'Q4_K']))
    for (const [i, { moved, minimum, steps }] of (await decodeTraffic(format, layer, contexts)).entries()) {
      const counts = [`${contexts[i]}`.padStart(6), `${moved}`.padStart(15), `${minimum}`.padStart(15)]
      lines.push(
        [format.padEnd(6), ...counts, (moved / minimum).toFixed(4), `${steps}`.padStart(4)].join('  '),
      )
    }
  return lines.join('\n')
}

/**
 * What prompts move and launch in a layer of Llama 3.1 8B: what the second of two adds.
 * @param {LlamaFormat} format @param {'f32' | 'nvfp4'} activations @param {number} [inputScale] of the activations, in the file
 */
export async function prefillTable(format, activations, inputScale) {
  const prompts = [512, 8192]
  const [one, two] = await Promise.all(
    [1, 2].map(layers => prefillTraffic(format, { ...layer, layers, inputScale }, prompts, activations)),
  )
  const scaled = inputScale === undefined ? '' : ' with scales of the file'
  const rounded = activations === 'nvfp4' ? `, activations in nvfp4${scaled}` : ''
  const lines = [`${format}${rounded}`, 'tokens  launches  bytes of activations']
  for (const [i, tokens] of prompts.entries()) {
    const [launches, bytes] = [two[i].launches - one[i].launches, two[i].bytes - one[i].bytes]
    lines.push([`${tokens}`.padStart(6), `${launches}`.padStart(8), `${bytes}`.padStart(20)].join('  '))
  }
  return lines.join('\n')
}
