// compile.ts: compilation of a graph to a program. Nodes become kernel calls in their order; what depends on constants only moves
// to the setup, what nobody reads goes, and the rest shares one arena.

import type { Precision } from '../core/config.js'
import { arrayBytes } from '../core/dtype.js'
import { SparkError } from '../core/errors.js'
import { atOnce, type Paced } from '../core/paced.js'
import { numel } from '../core/shape.js'
import { describeNode, namingNode } from '../graph/attributes.js'
import { Constant } from '../graph/constant.js'
import type { Graph, Node } from '../graph/graph.js'
import { type Fact, inferFactsPaced } from '../graph/shape-inference.js'
import type { Bf16Support, Kernels } from '../kernels/kernels.js'
import type { KernelType } from '../kernels/precision-args.js'
import { layOut, shareInPlace } from './arena.js'
import { elideCopies } from './copies.js'
import { loweringOf } from './lower/index.js'
import { constantValue, Lowering, type Scope, type TensorShape, type Value } from './lowering.js'
import { type Binding, Buffer, copyStep, operandsOf, type Program, type Step } from './program.js'
import { splitSetup } from './setup.js'
import { readInPlace } from './strided-reads.js'

/** Options of {@link compile}. */
export interface CompileOptions {
  /** Sizes of inputs whose shape in the graph is not the one that is wanted, by name. */
  readonly shapes?: Readonly<Record<string, readonly number[]>>
  /** The backend that is compiled for: constant weights are packed for kernels of `cpu`. Default: js. */
  readonly backend?: Kernels['backend']
  /** Whether to use kernels for numbers of 8 bits where quantized operators would be computed in f32. Default: false. */
  readonly bytes?: boolean
  /** What multiplies numbers of bf16. Default: none. */
  readonly bf16Support?: Bf16Support
  /** The mode that the weights of the graph are rounded in; see kernels/precision-policy.ts. Default: fp32. */
  readonly mode?: Precision
}

/** What compilation has to know of the kernels that it is for. */
export const optionsFor = (kernels: Kernels): CompileOptions => ({
  backend: kernels.backend,
  bytes: kernels.supports('convInteger'),
  bf16Support: kernels.bf16Support,
})

/**
 * Compiles a canonical graph for fixed sizes of its inputs.
 *
 * @throws SparkError ERR_SHAPE when an input has a dimension without a size, or when sizes do not fit; ERR_UNSUPPORTED
 * for an operator that has no kernel or a shape that depends on data; ERR_FORMAT for a graph that is broken;
 * ERR_ARGUMENT for a shape of no input
 */
export function compile(graph: Graph, options: CompileOptions = {}): Program {
  return atOnce(compilePaced(graph, options))
}

/** {@link compile} with pauses. */
export function* compilePaced(graph: Graph, options: CompileOptions = {}): Paced<Program> {
  const { shapes = {}, backend = 'js', mode = 'fp32', bytes = false, bf16Support = 'none' } = options
  const packs = backend === 'cpu'
  const target = { backend, mode, multipliesBf16: bf16Support !== 'none' }
  const updates = graph.updates ?? new Map<string, string>()
  const facts = yield* inferFactsPaced(graph, { shapes })
  const scope: Scope = { values: new Map(), steps: [], updates, bytes, target, lower }
  const inputs = graph.inputs
    .filter(({ name }) => !graph.initializers.has(name))
    .map(({ name }) => binding(name, addInput(scope, name, facts.get(name))))
  const state: Binding[] = []
  for (const [name, constant] of graph.initializers) {
    yield
    const value = updates.has(name)
      ? stateValue(constant)
      : constantValue(constant, numbersOf(facts.get(name)))
    scope.values.set(name, value)
    if (updates.has(name)) state.push(binding(name, value))
  }
  for (const node of updatesLast(graph)) {
    yield
    lower(
      scope,
      node,
      node.outputs.map(name => facts.get(name) ?? {}),
    )
  }
  for (const [name, next] of updates) addUpdate(scope, name, next)
  const outputs = graph.outputs.map(({ name }) => binding(name, outputOf(scope, name)))
  const needed = yield* removeDead(scope.steps, outputs)
  const { setup, steps: rest } = yield* splitSetup(needed, packs && bf16Support)
  const direct = yield* removeDead(yield* readInPlace(rest), outputs)
  const steps = yield* elideCopies(direct)
  yield* shareInPlace(steps)
  const arena = yield* layOut(steps)
  const constantBytes = yield* constantBytesOf(steps)
  return { setup, steps, inputs, outputs, state, ...arena, constantBytes }
}

const binding = (name: string, { dtype, shape, buffer }: Value): Binding => ({ name, dtype, shape, buffer })

function stateValue(constant: Constant): Value {
  const { dtype, shape, count } = constant
  return { dtype, shape, buffer: new Buffer(dtype, count, 'state', () => constant.data) }
}

/** The type of a value when all its sizes are known. */
function staticType(fact: Fact | undefined): TensorShape | undefined {
  const type = fact?.type
  if (type?.kind !== 'tensor' || !type.shape?.every(size => typeof size === 'number')) return undefined
  return { dtype: type.dtype, shape: type.shape as readonly number[] }
}

/** The elements of a value when all are known. */
function numbersOf(fact: Fact | undefined): readonly number[] | undefined {
  const elements = fact?.known?.elements
  return elements?.every(element => typeof element === 'number') ? (elements as readonly number[]) : undefined
}

function addInput(scope: Scope, name: string, fact: Fact | undefined): Value {
  const type = staticType(fact)
  if (!type) {
    const shape = fact?.type?.kind === 'tensor' ? (fact.type.shape?.join(', ') ?? 'unknown') : 'unknown'
    throw new SparkError(
      'ERR_SHAPE',
      `input '${name}' has the shape [${shape}]; give sizes in options.shapes`,
    )
  }
  const value: Value = { ...type, buffer: new Buffer(type.dtype, numel(type.shape), 'input') }
  scope.values.set(name, value)
  return value
}

/** The nodes in their order, those that write over a state after all others, which may read the old one. */
function updatesLast({ nodes, updates }: Graph): readonly Node[] {
  const next = new Set(updates?.values())
  const isUpdate = (node: Node): boolean => node.outputs.some(name => next.has(name))
  return [...nodes.filter(node => !isUpdate(node)), ...nodes.filter(isUpdate)]
}

/** An error about an operator that nothing here computes. */
export function unknownOperator(node: Node): SparkError {
  const why =
    node.domain === 'com.microsoft.nchwc'
      ? 'ONNX Runtime wrote it for one kind of processor; save the model with its extended optimizations, not with all'
      : 'there is no such operator yet'
  return new SparkError('ERR_UNSUPPORTED', `${describeNode(node)}: ${why}`)
}

function lower(scope: Scope, node: Node, outputs: readonly Fact[]): void {
  if (node.outputs.length === 1 && addKnown(scope, node.outputs[0]!, outputs[0])) return
  const rule = loweringOf(node)
  if (!rule) throw unknownOperator(node)
  const types = outputs.map((fact, i) => {
    const type = staticType(fact)
    if (type || node.outputs[i] === '') return type
    throw new SparkError(
      'ERR_UNSUPPORTED',
      `${describeNode(node)}: the shape of '${node.outputs[i]}' depends on data`,
    )
  })
  namingNode(node, () => rule(new Lowering(node, scope, types)))
}

/** Makes an integer value that shape inference has computed a constant. */
function addKnown(scope: Scope, name: string, fact: Fact | undefined): boolean {
  const [type, known] = [staticType(fact), numbersOf(fact)]
  if (!known || type?.dtype !== 'i64' || !known.every(Number.isSafeInteger)) return false
  scope.values.set(
    name,
    constantValue(Constant.from('i64', type.shape, BigInt64Array.from(known, BigInt)), known),
  )
  return true
}

/** A state whose next value is not written over it gets a copy of it at the end. */
function addUpdate(scope: Scope, name: string, next: string): void {
  const [state, value] = [scope.values.get(name), scope.values.get(next)]
  if (!state || !value || state.buffer.count !== value.buffer.count || state.dtype !== value.dtype) {
    throw new SparkError(
      'ERR_FORMAT',
      `'${next}' cannot replace '${name}': one is missing, or they differ in type`,
    )
  }
  if (state.buffer === value.buffer) return
  scope.steps.push(copyStep(state.dtype as KernelType, value.buffer, state.buffer))
}

function outputOf(scope: Scope, name: string): Value {
  const value = scope.values.get(name)
  if (!value) throw new SparkError('ERR_FORMAT', `output '${name}' is made by no node`)
  if (value.buffer.storage === 'arena') value.buffer.storage = 'output'
  return value
}

/** The steps that an output or a state depends on. */
function* removeDead(steps: readonly Step[], outputs: readonly Binding[]): Paced<Step[]> {
  const needed = new Set<Buffer>(outputs.map(({ buffer }) => buffer))
  const kept: Step[] = []
  for (let i = steps.length - 1; i >= 0; i--) {
    yield
    const step = steps[i]!
    const operands = [...operandsOf(step.args)]
    const isLive = ({ buffer, access }: (typeof operands)[number]): boolean =>
      access !== 'read' && (needed.has(buffer) || buffer.storage === 'state')
    if (!operands.some(isLive)) continue
    for (const { buffer, access } of operands) if (access !== 'write') needed.add(buffer)
    kept.push(step)
  }
  return kept.reverse()
}

function* constantBytesOf(steps: readonly Step[]): Paced<number> {
  const buffers = new Set<Buffer>()
  for (const { args } of steps) {
    for (const { buffer } of operandsOf(args)) buffers.add(buffer)
    yield
  }
  const constants = [...buffers].filter(({ storage }) => storage === 'constant' || storage === 'folded')
  return constants.reduce((bytes, { dtype, count }) => bytes + arrayBytes(dtype, count), 0)
}
