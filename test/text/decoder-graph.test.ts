// Graphs of decoders: every tensor of a file is used, under the names of all its makers, and what is missing is named.
import { readdirSync, readFileSync } from 'node:fs'
import t from 'tap'
import { Constant } from '#lib/graph/constant.js'
import type { Graph } from '#lib/graph/graph.js'
import type { WeightSource } from '#lib/text/architectures/config.js'
import { decoderGraph } from '#lib/text/architectures/decoder.js'
import { readDecoderConfig } from '#lib/text/architectures/decoders.js'
import { dataPath, foldersOf, noLanguageData, readJson } from '../fixtures/text/golden-data.js'

/** Shapes of the tensors of a safetensors file, of which only the header is looked at. */
function shapesOf(file: string): [name: string, shape: number[]][] {
  const bytes = readFileSync(file)
  const header = bytes.subarray(8, 8 + Number(bytes.readBigUInt64LE(0)))
  const entries = Object.entries(JSON.parse(header.toString()) as Record<string, { shape: number[] }>)
  return entries.filter(([name]) => name !== '__metadata__').map(([name, { shape }]) => [name, shape])
}

/** Zeros under the names of a model. */
function zerosOf(name: string): Map<string, readonly number[]> {
  const folder = dataPath('lm-golden', 'models', name)
  const files = readdirSync(folder).filter(file => /^model.*\.safetensors$/.test(file))
  return new Map(files.flatMap(file => shapesOf(`${folder}/${file}`)))
}

const zeros = (shape: readonly number[]): Constant =>
  Constant.from('f32', shape, new Float32Array(shape.reduce((product, size) => product * size, 1)))

const sourceOf = (shapes: ReadonlyMap<string, readonly number[]>): WeightSource => ({
  names: [...shapes.keys()],
  has: name => shapes.has(name),
  shape: name => shapes.get(name)!,
  constant: name => zeros(shapes.get(name)!),
  stack: names => ({ weight: zeros([names.length, ...shapes.get(names[0]!)!]), factors: undefined }),
})

const graphOf = (name: string, shapes = zerosOf(name)): Graph =>
  decoderGraph(readDecoderConfig(readJson('lm-golden', 'models', name, 'config.json')), sourceOf(shapes), {
    blocks: 4,
    blockSize: 8,
  })

const countOf = ({ nodes }: Graph, op: string): number => nodes.filter(node => node.op === op).length

t.test('all architectures become graphs of one form', { skip: noLanguageData }, async t => {
  for (const name of foldersOf('lm-golden', 'models').filter(folder => folder !== 'gpt-oss-mxfp4')) {
    const graph = graphOf(name)
    const layers = countOf(graph, 'PagedAttention')
    t.equal(
      layers,
      readDecoderConfig(readJson('lm-golden', 'models', name, 'config.json')).layers.length,
      name,
    )
    const inputs = graph.inputs.map(input => input.name)
    t.strictSame(inputs.slice(0, 7), ['tokens', 'positions', 'long', 'starts', 'past', 'blocks', 'rows'])
    t.equal(inputs.length, 7 + 2 * layers)
    t.strictSame(graph.outputs.map(output => output.name).slice(-2), ['hidden', 'logits'])
    const defined = new Set([
      '',
      ...inputs,
      ...graph.initializers.keys(),
      ...graph.nodes.flatMap(node => node.outputs),
    ])
    t.strictSame(
      graph.nodes.flatMap(node => node.inputs).filter(input => !defined.has(input)),
      [],
      'every value that is read is made',
    )
  }
})

t.test('what models differ in is in their graphs', { skip: noLanguageData }, async t => {
  t.equal(countOf(graphOf('mixtral'), 'ExpertLinear'), 2 * 3)
  t.equal(countOf(graphOf('gpt-oss'), 'ExpertLinear'), 3 * 2)
  t.equal(countOf(graphOf('gemma3'), 'RMSNormalization'), 7 * 4 + 1)
  t.equal(countOf(graphOf('olmo2'), 'RMSNormalization'), 3 * 4 + 1)
  t.equal(countOf(graphOf('gpt2'), 'LayerNormalization'), 3 * 2 + 1)
  t.equal(countOf(graphOf('gpt2'), 'Cos'), 0)
  t.equal(countOf(graphOf('gemma3'), 'Cos'), 2, 'one table for each kind of layer')
})

t.test('tensors that are missing or not known are named', { skip: noLanguageData }, async t => {
  const shapes = zerosOf('qwen3')
  t.throws(() => graphOf('qwen3', new Map([...shapes, ['model.layers.0.self_attn.gate.weight', [1]]])), {
    code: 'ERR_UNSUPPORTED',
    message: /model of type 'qwen3' does not know: model\.layers\.0\.self_attn\.gate\.weight/,
  })
  const without = new Map([...shapes].filter(([name]) => name !== 'model.layers.1.mlp.down_proj.weight'))
  t.throws(() => graphOf('qwen3', without), {
    code: 'ERR_FORMAT',
    message: /no weights of down of layer 1, such as model\.layers\.1\.mlp\.down_proj\.weight/,
  })
  t.throws(() => graphOf('qwen3', new Map()), { code: 'ERR_FORMAT' })
})
