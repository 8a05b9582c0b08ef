// Defaults of attributes: the standard's against a list checked by hand, and against the onnx package where a Python has it.
import { spawnSync } from 'node:child_process'
import path from 'node:path'
import t from 'tap'
import { defaultOf, earlierDefaults, standardDefaults } from '#lib/graph/attribute-defaults.js'
import { float, floatOf, int, intOf, string, stringOf } from '#lib/graph/attributes.js'
import { canonicalOpset, makeNode, sparkDomain } from '#lib/graph/graph.js'
import { families } from '#lib/graph/shapes/table.js'

type Value = number | string

const node = (op: string, domain = '') => makeNode(op, [], [], { domain })

t.test('defaults read in the specification of opset 25', async t => {
  const listed: readonly (readonly [op: string, name: string, value: Value])[] = [
    ['ArgMax', 'keepdims', 1],
    ['AveragePool', 'count_include_pad', 0],
    ['BatchNormalization', 'epsilon', 1e-5],
    ['BatchNormalization', 'momentum', 0.9],
    ['Conv', 'group', 1],
    ['Conv', 'auto_pad', 'NOTSET'],
    ['DequantizeLinear', 'axis', 1],
    ['Elu', 'alpha', 1],
    ['Flatten', 'axis', 1],
    ['Gather', 'axis', 0],
    ['Gelu', 'approximate', 'none'],
    ['Gemm', 'alpha', 1],
    ['Gemm', 'beta', 1],
    ['Gemm', 'transB', 0],
    ['HardSigmoid', 'alpha', 0.2],
    ['HardSigmoid', 'beta', 0.5],
    ['LRN', 'alpha', 1e-4],
    ['LRN', 'beta', 0.75],
    ['LSTM', 'direction', 'forward'],
    ['LayerNormalization', 'axis', -1],
    ['LayerNormalization', 'epsilon', 1e-5],
    ['LeakyRelu', 'alpha', 0.01],
    ['LpNormalization', 'p', 2],
    ['Pad', 'mode', 'constant'],
    ['ReduceSum', 'keepdims', 1],
    ['ReduceSum', 'noop_with_empty_axes', 0],
    ['Reshape', 'allowzero', 0],
    ['Resize', 'coordinate_transformation_mode', 'half_pixel'],
    ['Resize', 'cubic_coeff_a', -0.75],
    ['Resize', 'nearest_mode', 'round_prefer_floor'],
    ['Shrink', 'lambd', 0.5],
    ['Softmax', 'axis', -1],
    ['Split', 'axis', 0],
    ['TensorScatter', 'axis', -2],
    ['TopK', 'largest', 1],
    ['Trilu', 'upper', 1],
  ]
  for (const [op, name, value] of listed) t.equal(defaultOf(node(op), name), value, `${op}.${name}`)
  t.equal(defaultOf(node('Softmax'), 'axis', 12), 1, 'Softmax.axis before opset 13')
  t.equal(defaultOf(node('Softmax'), 'axis', 13), -1, 'Softmax.axis at opset 13')
  t.equal(defaultOf(node('Dropout'), 'ratio', 11), 0.5, 'Dropout.ratio as an attribute')
  t.equal(defaultOf(node('Dropout'), 'ratio'), undefined, 'Dropout.ratio as an input')
})

t.test('other domains have tables of their own', async t => {
  t.equal(defaultOf(node('SkipLayerNormalization', 'com.microsoft'), 'epsilon'), 1e-12)
  t.equal(defaultOf(node('Adam', 'ai.onnx.preview.training'), 'alpha'), 0.9)
  t.equal(defaultOf(node('Adam', 'ai.onnx.preview.training'), 'epsilon'), 1e-6)
  t.equal(defaultOf(node('FusedConv', sparkDomain), 'activation'), 'none')
  t.equal(defaultOf(node('Softmax', 'com.example'), 'axis'), undefined)
  t.equal(defaultOf(node('constructor'), 'name'), undefined)
})

t.test(
  'readers take the value of the node, then the default, and refuse an attribute without either',
  async t => {
    const attributes = { axis: int(2), epsilon: float(0.5), of: string('x') }
    const given = makeNode('LayerNormalization', [], [], { attributes })
    t.equal(intOf(given, 'axis'), 2)
    t.equal(floatOf(given, 'epsilon'), 0.5)
    t.equal(stringOf(given, 'of'), 'x')
    t.equal(intOf(node('LayerNormalization'), 'axis'), -1)
    t.equal(floatOf(node('LayerNormalization'), 'epsilon'), 1e-5)
    t.equal(stringOf(node('Gelu'), 'approximate'), 'none')
    const missing = { code: 'ERR_INTERNAL', message: /\(Gelu\).*'approximation'/ }
    t.throws(() => stringOf(node('Gelu'), 'approximation'), missing)
    t.throws(() => intOf(node('Gelu'), 'approximate'), { code: 'ERR_INTERNAL' }, 'a string is not a number')
  },
)

const python = process.env.DGX_SPARK_PYTHON ?? 'python3'
const found = spawnSync(python, ['-c', 'import onnx'], { stdio: 'ignore' }).status === 0
const skip = found ? false : `no Python with onnx (${python})`

/** Defaults by operator, opset and attribute, as the onnx package knows them: int, float and string attributes only. */
type Schemas = Readonly<Record<string, Readonly<Record<string, Readonly<Record<string, Value>>>>>>

function schemas(): Schemas {
  const script = path.resolve('test/fixtures/onnx/attribute_defaults.py')
  return JSON.parse(spawnSync(python, [script], { encoding: 'utf8', maxBuffer: 2 ** 26 }).stdout) as Schemas
}

/** The defaults of an operator at an opset; of the oldest version for one that came later. */
function at(versions: Schemas[string], opset: number): Readonly<Record<string, Value>> {
  const since = Object.keys(versions)
    .map(Number)
    .sort((a, b) => a - b)
  return versions[since.findLast(version => version <= opset) ?? since[0]!]!
}

/** Numbers as f32, which the schemas hold. */
const rounded = (values: Readonly<Record<string, Value>>): Record<string, Value> =>
  Object.fromEntries(
    Object.entries(values).map(([name, value]) => [
      name,
      typeof value === 'number' ? Math.fround(value) : value,
    ]),
  )

t.test('the onnx package names the same defaults', { skip }, async t => {
  const known = schemas()
  for (const op of Object.values(families).flatMap(family => Object.keys(family[''] ?? {}))) {
    const values = known[op] ? at(known[op], canonicalOpset) : {}
    t.ok(Object.keys(values).length === 0 || standardDefaults[op], `${op} has a row`)
  }
  for (const [op, values] of Object.entries(standardDefaults)) {
    t.same(rounded(values), rounded(at(known[op]!, canonicalOpset)), op)
  }
  for (const [op, { before, ...values }] of Object.entries(earlierDefaults)) {
    const standard = rounded(at(known[op]!, before - 1))
    for (const [name, value] of Object.entries(rounded(values))) {
      if (name in standard) t.equal(value, standard[name], `${op}.${name} before opset ${before}`)
    }
  }
})
