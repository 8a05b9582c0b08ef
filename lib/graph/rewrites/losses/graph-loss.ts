// graph-loss.ts: joins a loss that is a graph of the caller to a model.
import { didYouMean } from '../../../core/did-you-mean.js'
import { isHalf } from '../../../core/dtype.js'
import { SparkError } from '../../../core/errors.js'
import { int } from '../../attributes.js'
import { freshNames, renameReads, valueNames } from '../../edit.js'
import { onnxNumbers } from '../../element-types.js'
import { type Graph, makeNode, type ValueType } from '../../graph.js'
import { inferFacts } from '../../shape-inference.js'
import { uniqueNames } from '../unique-names.js'

/** What names of the loss's values start with. */
const prefix = 'loss/'
/** How a loss names a value of the teacher. */
const teacherPrefix = 'teacher/'

/** Whether a loss is a graph. */
export const isGraph = (loss: unknown): loss is Graph =>
  typeof loss === 'object' && loss !== null && 'initializers' in loss && 'nodes' in loss

/**
 * Appends the nodes of `loss` to a model. Its inputs are values of the model of the same name; `teacher/…` is a value of the
 * teacher; all others become inputs, the fields of a batch. Values of 16 bits are read as f32 where the loss wants that, since training
 * computes them in f32.
 *
 * @param loss - in canonical form, with one output of one element
 * @returns the graph, and the name of the loss in it
 * @throws SparkError ERR_ARGUMENT when the loss reads nothing of the model or has several outputs, ERR_DTYPE and ERR_SHAPE
 * naming the input or output that does not fit
 */
export function joinLoss(
  graph: Graph,
  loss: Graph,
  teacher: ReadonlyMap<string, string>,
): { readonly graph: Graph; readonly loss: string } {
  const inputs = loss.inputs.filter(({ name }) => !loss.initializers.has(name))
  const own = valueNames(graph)
  const names = new Map<string, string>()
  for (const { name } of inputs) {
    const taught = name.startsWith(teacherPrefix) ? teacher.get(name.slice(teacherPrefix.length)) : undefined
    if (taught !== undefined) names.set(name, taught)
    else if (own.has(name)) names.set(name, name)
  }
  expectJoined(
    graph,
    loss,
    inputs.map(({ name }) => name),
    names,
  )
  const fresh = freshNames(graph)
  const casts = halvesOf(graph, loss, names).map(({ name, value }) => {
    const wide = fresh(`${prefix}${name}`)
    names.set(name, wide)
    return makeNode('Cast', [value], [wide], { attributes: { to: int(onnxNumbers.f32) } })
  })
  const inner = [...loss.initializers.keys(), ...loss.nodes.flatMap(({ outputs }) => outputs)]
  for (const name of inner) if (name !== '') names.set(name, fresh(`${prefix}${name}`))
  const nodes = renameReads(loss, names).nodes.map(node => ({
    ...node,
    name: node.name && `${prefix}${node.name}`,
    outputs: node.outputs.map(name => names.get(name) ?? name),
  }))
  const initializers = [...loss.initializers].map(([name, value]) => [names.get(name)!, value] as const)
  const joined = uniqueNames({
    ...graph,
    inputs: [...graph.inputs, ...inputs.filter(({ name }) => !names.has(name))],
    nodes: [...graph.nodes, ...casts, ...nodes],
    initializers: new Map([...graph.initializers, ...initializers]),
    opsets: new Map([...loss.opsets, ...graph.opsets]),
    functions: [...graph.functions, ...loss.functions],
  })
  const result = loss.outputs[0]!.name
  const name = names.get(result) ?? result
  expectNumber(joined, name, result)
  return { graph: joined, loss: name }
}

/** Values of f16 and bf16 that the loss reads as f32. */
function halvesOf(
  graph: Graph,
  loss: Graph,
  names: ReadonlyMap<string, string>,
): { readonly name: string; readonly value: string }[] {
  const facts = inferFacts(graph)
  return loss.inputs.flatMap(({ name, type }) => {
    const value = names.get(name)
    const given = value === undefined ? undefined : facts.get(value)?.type
    return value !== undefined && given && type && isWidened(given, type) ? [{ name, value }] : []
  })
}

const isWidened = (given: ValueType, wanted: ValueType): boolean =>
  given.kind === 'tensor' && wanted.kind === 'tensor' && wanted.dtype === 'f32' && isHalf(given.dtype)

/** Checks outputs, and inputs against the values of the model that they read. */
function expectJoined(
  graph: Graph,
  loss: Graph,
  inputs: readonly string[],
  names: ReadonlyMap<string, string>,
): void {
  const outputs = graph.outputs.map(({ name }) => name)
  if (loss.outputs.length !== 1) {
    const found = loss.outputs.map(({ name }) => name).join(', ') || 'none'
    throw new SparkError('ERR_ARGUMENT', `options.loss must have one output, the loss; it has ${found}`)
  }
  const inputsOfModel = new Set(graph.inputs.map(({ name }) => name))
  if (![...names.values()].some(name => !inputsOfModel.has(name))) {
    const hint = inputs.map(name => didYouMean(name, outputs)).find(text => text !== '') ?? ''
    const reads = `options.loss reads ${inputs.join(', ') || 'nothing'}, and so no output of the model${hint}`
    throw new SparkError(
      'ERR_ARGUMENT',
      `${reads}; name an input like one of its outputs: ${outputs.join(', ')}`,
    )
  }
  const facts = inferFacts(graph)
  for (const { name, type: wanted } of loss.inputs) {
    const value = names.get(name)
    const given = value === undefined ? undefined : facts.get(value)?.type
    if (!given || !wanted || agree(given, wanted)) continue
    const code =
      given.kind === 'tensor' && wanted.kind === 'tensor' && given.dtype === wanted.dtype
        ? 'ERR_SHAPE'
        : 'ERR_DTYPE'
    throw new SparkError(
      code,
      `options.loss: its input '${name}' is ${show(wanted)}, but the model's value ${show(given)}`,
    )
  }
}

/** The loss must be one number of f32. */
function expectNumber(graph: Graph, name: string, output: string): void {
  const type = inferFacts(graph).get(name)?.type
  if (!type) return
  const sizes = type.kind === 'tensor' ? (type.shape ?? []) : [0]
  if (type.kind === 'tensor' && type.dtype === 'f32' && sizes.every(size => size === 1)) return
  const remedy = 'reduce it with ReduceMean over all axes, keepdims 0'
  throw new SparkError(
    'ERR_SHAPE',
    `options.loss: its output '${output}' is ${show(type)}, not one number of f32: ${remedy}`,
  )
}

/** Whether a value of type `a` can be read as `b`: open sizes may be any. */
function agree(a: ValueType, b: ValueType): boolean {
  if (a.kind !== 'tensor' || b.kind !== 'tensor') return a.kind === b.kind
  if (a.dtype !== b.dtype && !isWidened(a, b)) return false
  const [one, two] = [a.shape, b.shape]
  if (!one || !two) return true
  const fits = (size: unknown, i: number): boolean =>
    typeof size !== 'number' || typeof two[i] !== 'number' || size === two[i]
  return one.length === two.length && one.every(fits)
}

const show = (type: ValueType): string =>
  type.kind === 'tensor'
    ? `${type.dtype} [${(type.shape ?? ['?']).map(size => size ?? '?').join(', ')}]`
    : `a ${type.kind}`
