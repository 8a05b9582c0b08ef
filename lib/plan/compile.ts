// compile.ts: compilation of a graph to a program. Nodes become kernel calls in their order; what depends on constants only moves
// to the setup, what nobody reads goes, and the rest shares one arena.

import type { Precision } from '../core/config.js'
import { SparkError } from '../core/errors.js'
import { atOnce, type Paced } from '../core/paced.js'
import { numel } from '../core/shape.js'
import { isSize, isWhole, type Size, sameSize } from '../core/size.js'
import { describeNode, namingNode } from '../graph/attributes.js'
import type { Constant } from '../graph/constant.js'
import { readsOf } from '../graph/edit.js'
import type { Graph, Node } from '../graph/graph.js'
import { type Fact, inferFactsPaced } from '../graph/shape-inference.js'
import type { Bf16Support, Kernels } from '../kernels/kernels.js'
import type { KernelType } from '../kernels/precision-args.js'
import { shareInPlace } from './arena.js'
import { layChannelsLast } from './channels-last.js'
import { compactImages } from './compact-images.js'
import { elideCopies } from './copies.js'
import { type StateOptions, stateInput, storeStep } from './growing-state.js'
import { halveActivations } from './half-activations.js'
import { keepChannelsLast } from './image-layout.js'
import { joinAdamw } from './join-adamw.js'
import { joinConvolutions } from './join-convolutions.js'
import { loweringOf } from './lower/index.js'
import { Lowering, type Scope } from './lowering.js'
import { isConstant } from './pack-weights.js'
import {
  Buffer,
  copyStep,
  type NextShape,
  operandsOf,
  type Program,
  type Step,
  type SymbolicBinding,
} from './program.js'
import { roundOnce } from './rounded-activations.js'
import { splitSetup } from './setup.js'
import { readInPlace } from './strided-reads.js'
import { constantValue, listValue, type TensorShape, type Value } from './value.js'

/** What counts more: the time of a run, or the memory of weights. */
export type MemoryUse = 'fast' | 'small'

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
  /** Whether weights may take more memory than they have, where kernels are then faster. Default: fast. */
  readonly memory?: MemoryUse
  /** Ranks of the communicator that the kernels call. Default: there is none. */
  readonly world?: number | undefined
  /** The device whose memory weights may be in. Default: there is none. */
  readonly device?: number | undefined
  /** The inputs that `updates` of the graph names: they become states. */
  readonly states?: ReadonlyMap<string, StateOptions>
}

/** What compilation has to know of the kernels that it is for. */
export const optionsFor = (kernels: Kernels): CompileOptions => ({
  backend: kernels.backend,
  bytes: kernels.supports('convInteger'),
  bf16Support: kernels.bf16Support,
  world: kernels.world,
  device: kernels.deviceMemory?.device,
})

/**
 * Compiles a canonical graph whose inputs have sizes that are numbers or symbols.
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
  const { shapes = {}, backend = 'js', mode = 'fp32', bf16Support = 'none' } = options
  const { bytes = false } = options
  const packing = backend === 'cpu' && { bf16Support, enlarges: options.memory !== 'small' }
  const multipliesBf16 = bf16Support !== 'none'
  const { world, device } = options
  const target = { backend, mode, world, device, multipliesBf16 }
  const { states = new Map<string, StateOptions>() } = options
  const { updates, written } = updatesOf(graph, states)
  const facts = yield* inferFactsPaced(graph, { shapes })
  const scope: Scope = {
    values: new Map(),
    steps: [],
    updates: written,
    bytes,
    target,
    lower,
  }
  const inputs = graph.inputs
    .filter(({ name }) => !graph.initializers.has(name) && !states.has(name))
    .map(({ name }) => binding(name, addInput(scope, name, facts.get(name))))
  const shapeAfter = (name: string): readonly Size[] => sizedType(facts.get(updates.get(name)!))?.shape ?? []
  const state = [...states].map(([name, options]) =>
    addStateInput(scope, name, facts.get(name), shapeAfter(name), options),
  )
  for (const [name, constant] of graph.initializers) {
    yield
    const value = updates.has(name) ? stateValue(constant) : constantValue(constant, sizesOf(facts.get(name)))
    scope.values.set(name, value)
    if (updates.has(name)) state.push(binding(name, value))
  }
  for (const node of updatesLast(graph, updates)) {
    yield
    lower(
      scope,
      node,
      node.outputs.map(name => facts.get(name) ?? {}),
    )
  }
  const next = [...states.keys()].map((name): NextShape => {
    const { growing } = scope.values.get(name)!
    return { name, shape: shapeAfter(name), keeps: growing?.isExtended === true && !growing.isChanged }
  })
  const old = new Map([...updates.keys()].map(name => [name, scope.values.get(name)]))
  keepOldStates(scope, updates, graph)
  for (const [name, next] of updates) addUpdate(scope, name, old.get(name), next)
  const outputs = graph.outputs.map(({ name }) => binding(name, outputOf(scope, name)))
  const needed = yield* removeDead(scope.steps, outputs)
  const { setup, sizing, steps: rest } = yield* splitSetup(needed, packing)
  const laidOut = backend === 'cuda' ? yield* layChannelsLast(rest, setup) : rest
  const direct = yield* removeDead(yield* readInPlace(laidOut), outputs)
  const joined = packing ? yield* compactImages(yield* joinConvolutions(direct)) : direct
  const copied = yield* joinAdamw(yield* elideCopies(joined))
  const steps =
    backend === 'cuda'
      ? yield* roundOnce(yield* keepChannelsLast(yield* halveActivations(copied), setup))
      : copied
  yield* shareInPlace(steps)
  const ends = [...inputs, ...outputs, ...state].map(({ buffer }) => buffer)
  const buffers = yield* buffersOf([...sizing, ...steps], ends)
  const own = buffers.filter(({ storage }) => ['sized', 'state', 'input', 'output'].includes(storage))
  const constants = (yield* buffersOf(steps)).filter(isConstant)
  return { setup, sizing, steps, inputs, outputs, state, next, own, constants }
}

const binding = (name: string, { dtype, shape, buffer }: Value): SymbolicBinding => ({
  name,
  dtype,
  shape,
  buffer,
})

function stateValue(constant: Constant): Value {
  const { dtype, shape, count } = constant
  return { dtype, shape, buffer: new Buffer(dtype, count, 'state', () => constant.data) }
}

/** The type of a value when all its sizes are known. */
function sizedType(fact: Fact | undefined): TensorShape | undefined {
  const type = fact?.type
  if (type?.kind !== 'tensor' || !type.shape?.every(isSize)) return undefined
  return { dtype: type.dtype, shape: type.shape as readonly Size[] }
}

/** The elements of a value when all are known. */
function sizesOf(fact: Fact | undefined): readonly Size[] | undefined {
  const elements = fact?.known?.elements
  return elements?.every(isSize) ? (elements as readonly Size[]) : undefined
}

function addInput(scope: Scope, name: string, fact: Fact | undefined): Value {
  const type = sizedType(fact)
  if (!type) {
    const shape = fact?.type?.kind === 'tensor' ? (fact.type.shape?.join(', ') ?? 'unknown') : 'unknown'
    throw new SparkError(
      'ERR_SHAPE',
      `input '${name}' has the shape [${shape}]; give sizes in options.shapes`,
    )
  }
  const buffer = new Buffer(type.dtype, numel(type.shape), 'input')
  const value: Value = { ...type, buffer, known: sizesOf(fact) }
  scope.values.set(name, value)
  return value
}

/** An input that is a state; its memory. */
function addStateInput(
  scope: Scope,
  name: string,
  fact: Fact | undefined,
  next: readonly Size[],
  options: StateOptions,
): SymbolicBinding {
  const type = sizedType(fact)
  if (!type) throw new SparkError('ERR_SHAPE', `the state '${name}' has a size that is not known`)
  const { value, steps } = stateInput(type, next, options)
  scope.values.set(name, value)
  scope.steps.push(...steps)
  return binding(name, { ...value, ...value.growing })
}

/**
 * The updates of a graph, and those of them whose node may write over the state: an input that nobody else reads, and every
 * initializer, whose updates come last.
 */
function updatesOf(
  { nodes, outputs, updates = new Map() }: Graph,
  states: ReadonlyMap<string, StateOptions>,
) {
  const readers = new Map<string, number>()
  if (states.size > 0) {
    const read = [...nodes.flatMap(readsOf), ...updates.values(), ...outputs.map(({ name }) => name)]
    for (const name of read) readers.set(name, (readers.get(name) ?? 0) + 1)
  }
  const written = new Map(
    [...updates].filter(([name]) => !states.has(name) || readers.get(name) === 1),
  ) as ReadonlyMap<string, string>
  return { updates: updates as ReadonlyMap<string, string>, written }
}

/** The nodes in their order, those that write over an initializer after all others, which may read the old one. */
function updatesLast({ nodes, initializers }: Graph, updates: ReadonlyMap<string, string>): readonly Node[] {
  const next = new Set<string>()
  for (const [name, value] of updates) if (initializers.has(name)) next.add(value)
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
    const type = sizedType(fact)
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
  const [type, known] = [sizedType(fact), sizesOf(fact)]
  if (!known || type?.dtype !== 'i64' || !known.every(isWhole)) return false
  scope.values.set(name, listValue('i64', type.shape, known))
  return true
}
/** Copies what states have before a run, where it is an output or what another state becomes, before they are written over. */
function keepOldStates(scope: Scope, updates: ReadonlyMap<string, string>, { outputs }: Graph): void {
  const replaced = new Set([...updates.keys()].map(name => scope.values.get(name)?.buffer))
  const kept = new Map([...updates].map(([name, next]) => [next, scope.values.get(name)?.buffer]))
  for (const name of new Set([...updates.values(), ...outputs.map(({ name }) => name)])) {
    const value = scope.values.get(name)
    if (!value || value.growing || !replaced.has(value.buffer)) continue
    if (kept.get(name) === value.buffer) continue // it is the next value already
    const copy = new Buffer(value.dtype, value.buffer.count, 'arena')
    scope.steps.push(copyStep(value.dtype as KernelType, value.buffer, copy))
    scope.values.set(name, { ...value, buffer: copy })
  }
}

/** A state whose next value is not written over it gets a copy of it at the end. */
function addUpdate(scope: Scope, name: string, state: Value | undefined, next: string): void {
  const value = scope.values.get(next)
  const isGrowing = state?.growing !== undefined
  const fits =
    state?.dtype === value?.dtype && (isGrowing || sameSize(state!.buffer.count, value!.buffer.count))
  if (!state || !value || !fits) {
    throw new SparkError(
      'ERR_FORMAT',
      `'${next}' cannot replace '${name}': one is missing, or they differ in type`,
    )
  }
  const step = storeStep(value, state)
  if (step) scope.steps.push(step)
}

function outputOf(scope: Scope, name: string): Value {
  const value = scope.values.get(name)
  if (!value) throw new SparkError('ERR_FORMAT', `output '${name}' is made by no node`)
  if (value.buffer.storage === 'arena') value.buffer.storage = 'output'
  return value
}

/** The steps that an output or a state depends on. */
function* removeDead(steps: readonly Step[], outputs: readonly SymbolicBinding[]): Paced<Step[]> {
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

/** The buffers of steps, and others, each once. */
function* buffersOf(steps: readonly Step[], others: readonly Buffer[] = []): Paced<Buffer[]> {
  const buffers = new Set(others)
  for (const { args } of steps) {
    for (const { buffer } of operandsOf(args)) buffers.add(buffer)
    yield
  }
  return [...buffers]
}
