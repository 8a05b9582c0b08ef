// Costs of layers: of language models by their tensors, of graphs by their cuts.
import t from 'tap'
import {
  decodeFlopsOf,
  heldBytesOf,
  layerRange,
  prefillFlopsOf,
  readBytesOf,
} from '#lib/cluster/placement/costs.js'
import { graphCosts } from '#lib/cluster/placement/graph-costs.js'
import { costsOfTensors, type StoredMatrix } from '#lib/cluster/placement/language-costs.js'
import { modelCosts } from '#lib/cluster/placement/model-costs.js'
import { Constant } from '#lib/graph/constant.js'
import { makeGraph, makeNode, tensorType } from '#lib/graph/graph.js'
import { readModelConfig } from '#lib/text/architectures/model-config.js'
import { chainGraph } from '../../fixtures/placement.js'

const llama = {
  ...{ model_type: 'llama', hidden_size: 64, intermediate_size: 128, vocab_size: 99, rms_norm_eps: 1e-5 },
  ...{ num_hidden_layers: 2, num_attention_heads: 4, num_key_value_heads: 2, max_position_embeddings: 512 },
}

const matrix = (name: string, format: string, bytes: number, ...shape: number[]): StoredMatrix => ({
  ...{ name, format, shape, byteLength: bytes * shape.reduce((a, b) => a * b, 1) },
})

t.test('a decoder', async t => {
  const tensors = [
    matrix('model.embed_tokens.weight', 'BF16', 2, 99, 64),
    ...[0, 1].flatMap(l => [
      matrix(`model.layers.${l}.self_attn.q_proj.weight`, 'F8_E4M3', 1, 64, 64),
      matrix(`model.layers.${l}.self_attn.q_proj.weight_scale_inv`, 'F32', 4, 1, 1),
      matrix(`model.layers.${l}.mlp.up_proj.weight`, 'BF16', 2, 128, 64),
      matrix(`model.layers.${l}.input_layernorm.weight`, 'BF16', 2, 64),
    ]),
    matrix('model.norm.weight', 'BF16', 2, 64),
  ]
  const costs = costsOfTensors('tiny', readModelConfig(llama, 'config.json'), tensors)
  const [embedding, first, , head] = costs.layers
  t.strictSame(
    costs.layers.map(({ name }) => name),
    ['embedding', '0', '1', 'head'],
  )
  t.match(costs, { kind: 'language', contextLength: 512, sharedBytes: 2 * 99 * 64 })
  t.strictSame(costs.divisible, { heads: 4, kvHeads: 2, hiddenSize: 64 })
  t.equal(head!.weightBytes, 2 * 99 * 64 + 2 * 64, 'the head is the embedding')
  t.equal(first!.weightBytes, 64 * 64 + 4 + 2 * 128 * 64 + 2 * 64)
  t.strictSame(first!.flops, { f8_e4m3: 2 * 64 * 64, bf16: 2 * 128 * 64 }, 'without scales and norms')
  t.strictSame(first!.operators, [
    { op: 'MatMul', dtype: 'f8_e4m3' },
    { op: 'MatMul', dtype: 'bf16' },
  ])
  t.equal(first!.stateBytes, 2 * 2 * 16 * 2)
  const load = { context: 100, batch: 3, sequences: 5 }
  t.equal(heldBytesOf(first!, load), first!.weightBytes + 5 * 100 * 128)
  t.equal(readBytesOf(first!, load), first!.weightBytes + 3 * 100 * 128)
  t.equal(readBytesOf(embedding!, load), 0, 'a row of the table')
  t.strictSame(
    [...decodeFlopsOf(first!, load)],
    [
      ['f8_e4m3', 3 * 8192],
      ['bf16', 3 * 16384],
      ['f16', 4 * 4 * 16 * 3 * 100],
    ],
  )
  t.equal(prefillFlopsOf(first!, 10).get('f16'), (4 * 4 * 16 * 10 * 11) / 2, 'token i attends to i')
  t.equal(prefillFlopsOf(head!, 10).get('bf16'), 2 * 99 * 64, 'the last token only')
  t.equal(layerRange(costs, 0, 4), 'embedding, layers 0-1, head')
  t.equal(layerRange(costs, 2, 3), 'layer 1')
  t.throws(() => costsOfTensors('tiny', readModelConfig(llama, 'config.json'), tensors.slice(0, 5)), {
    message: 'tiny has no tensors of layer 1',
  })
})

t.test('experts: a token reads those that it uses', async t => {
  const config = {
    ...{ ...llama, model_type: 'qwen3_moe', num_hidden_layers: 1, head_dim: 16, num_experts: 8 },
    ...{ num_experts_per_tok: 2, moe_intermediate_size: 32, norm_topk_prob: true },
  }
  const experts = Array.from({ length: 8 }, (_, e) =>
    matrix(`model.layers.0.mlp.experts.${e}.up_proj.weight`, 'BF16', 2, 32, 64),
  )
  const router = matrix('model.layers.0.mlp.gate.weight', 'BF16', 2, 8, 64)
  const costs = costsOfTensors('moe', readModelConfig(config, 'config.json'), [router, ...experts])
  const layer = costs.layers[1]!
  t.strictSame(layer.experts, { bytes: 8 * 32 * 64 * 2, count: 8, used: 2 })
  t.equal(layer.flops.bf16, 2 * 8 * 64 + 2 * 2 * 32 * 64)
  const read = (batch: number) =>
    readBytesOf({ ...layer, stateBytes: 0 }, { context: 1, batch, sequences: batch })
  t.equal(read(1), 2 * 8 * 64 + 2 * 2 * 32 * 64)
  t.ok(Math.abs(read(2) - (2 * 8 * 64 + 8 * 32 * 64 * 2 * (1 - 0.75 ** 2))) < 1e-6)
})

t.test('a graph is cut where one value goes on', async t => {
  const costs = await modelCosts(chainGraph(5, 3), { name: 'five' })
  t.match(costs, { name: 'five', kind: 'graph', sharedBytes: 0 })
  t.equal(costs.layers.length, 5)
  for (const [i, layer] of costs.layers.entries()) {
    t.match(layer, { name: `${i}`, weightBytes: 256, flops: { f32: 2 * 8 * 24 }, cutBytes: i < 4 ? 96 : 0 })
    t.strictSame(layer.operators, [{ op: 'MatMul', dtype: 'f32' }])
  }
})

t.test('no cut inside of a residual block, one through a mask that all blocks read', async t => {
  const count = 12
  const type = tensorType('f32', [4, 8])
  const blocks = Array.from({ length: count }, (_, i) => [
    makeNode('MatMul', [`x${i}`, 'w'], [`a${i}`]),
    makeNode('Mul', [`a${i}`, 'half'], [`b${i}`]),
    makeNode('Add', [`x${i}`, `b${i}`], [`x${i + 1}`]),
  ])
  const graph = makeGraph({
    inputs: [
      { name: 'x0', type },
      { name: 'mask', type },
    ],
    outputs: [{ name: `x${count}`, type }],
    nodes: [makeNode('Neg', ['mask'], ['half']), makeNode('Relu', ['x0'], ['start']), ...blocks.flat()].map(
      node =>
        node.inputs.includes('x0') && node.op !== 'Relu'
          ? { ...node, inputs: node.inputs.map(each => (each === 'x0' ? 'start' : each)) }
          : node,
    ),
    initializers: new Map([['w', Constant.from('f32', [8, 8], new Float32Array(64))]]),
  })
  const { layers } = graphCosts('residual', graph)
  t.equal(layers.length, 2 + count, 'what is done to the mask and the input, and the blocks')
  for (const layer of layers.slice(1, -1)) t.equal(layer.cutBytes, 2 * 128, 'the mask goes along')
  t.throws(() => graphCosts('empty', makeGraph({})), { code: 'ERR_FORMAT' })
})

t.test('a graph of many nodes has few layers', async t => {
  const { layers } = graphCosts('long', chainGraph(500))
  t.equal(layers.length, 128)
  t.equal(
    layers.reduce((sum, { weightBytes }) => sum + weightBytes, 0),
    500 * 256,
  )
  t.equal(
    layers.reduce((sum, { flops }) => sum + flops.f32!, 0),
    500 * 128,
  )
})
