// read.ts: reader of ONNX files.
import path from 'node:path'
import { fileURLToPath } from 'node:url'
import { argumentError } from '../../core/checks.js'
import { SparkError } from '../../core/errors.js'
import { atOnce, mapPaced, type Paced, Pacer } from '../../core/paced.js'
import type { Constant, ConstantSource } from '../../graph/constant.js'
import {
  type Graph,
  type GraphFunction,
  type Node,
  type Subgraph,
  tensorType,
  type ValueInfo,
  type ValueType,
} from '../../graph/graph.js'
import { checkGraphPaced } from '../../graph/validate.js'
import { KeptFile } from '../kept-file.js'
import { expectNotPointer } from '../safetensors-header.js'
import { decodeMessagePaced } from './decode.js'
import type { Message } from './messages.js'
import { type FileRange, readOutline } from './outline.js'
import { readAttributes } from './read-attribute.js'
import { densify, readSparse, readTensor, type TensorContext } from './read-tensor.js'
import { readValueInfo } from './read-type.js'

/** Newest version of the ONNX format that is understood. */
const maxIrVersion = 13

/** First version of the format whose initializers are inputs only where a run may feed them. */
const minOverridable = 4

/** Bytes from which on the weights of a file, and tensors in it, are read when they are needed. */
const [largeFile, largeTensor] = [2 ** 24, 2 ** 16]

/** Newest version of the ONNX standard operators that is understood. */
const maxOpset = 28

/** Options of {@link readOnnx}. */
export interface ReadOnnxOptions {
  /** Bytes of the files beside the model, by their names in it. Default: none, or those in the folder of a path. */
  readonly externalData?: ReadonlyMap<string, Uint8Array> | undefined
  /** Names a model that came as bytes in errors. */
  readonly label?: string
}

/**
 * Reads an ONNX model. Weights in files beside it, and large ones of a large file, are read when they are used; everything
 * else is checked here.
 *
 * @param source - a path, a `file:` URL, or the bytes of a model, which must then not change
 * @param pacer - lets the event loop turn between parts of a large model, and ends reading when its signal is aborted
 * @throws SparkError ERR_FORMAT naming the node, tensor or field that is broken, ERR_UNSUPPORTED for versions that are
 * too new, ERR_IO when a file cannot be read, ERR_ARGUMENT
 */
export async function readOnnx(
  source: string | URL | Uint8Array,
  pacer = new Pacer(),
  { externalData, label = 'model' }: ReadOnnxOptions = {},
): Promise<Graph> {
  const given = { folder: undefined, given: externalData, known: new Map() }
  if (source instanceof Uint8Array) return pacer.do(parse(source, { label, external: given }))
  const file = toPath(source)
  const kept = await KeptFile.open(file)
  const { bytes, left } = await readOutline(kept, kept.byteLength < largeFile ? Infinity : largeTensor, pacer)
  const external = externalData ? given : { ...given, folder: path.dirname(file) }
  const leftOf = (rawData: Uint8Array): ConstantSource | undefined => {
    const range = rawData.buffer === bytes.buffer ? left.get(rawData.byteOffset) : undefined
    return range && rangeSource(kept, range)
  }
  return pacer.do(parse(bytes, { label: file, external, left: leftOf }))
}

/** Elements that stay in a file until somebody asks for them. */
function rangeSource(file: KeptFile, { begin, byteLength }: FileRange): ConstantSource {
  let last: WeakRef<Uint8Array> | undefined
  return {
    byteLength,
    read() {
      const known = last?.deref()
      if (known) return known
      const bytes = file.read(begin, byteLength)
      last = new WeakRef(bytes)
      return bytes
    },
    load: () => file.load(begin, byteLength),
    part: (from, length) => rangeSource(file, { begin: begin + from, byteLength: length }),
    fileParts: [{ file: file.path, begin, byteLength }],
  }
}

/**
 * Reads the bytes of an ONNX model whose weights are all inside; tensors are views of `bytes`.
 * @param label - names the model in errors
 * @throws SparkError as {@link readOnnx}
 */
export function parseOnnx(bytes: Uint8Array, label = 'model'): Graph {
  return atOnce(parse(bytes, fromBytes(label)))
}

const fromBytes = (label: string): TensorContext => ({
  label,
  external: { folder: undefined, known: new Map() },
})

function toPath(source: string | URL): string {
  if (typeof source === 'string' && /^file:\/\//i.test(source)) return fileURLToPath(source)
  if (typeof source === 'string' && source !== '') return path.resolve(source)
  if (source instanceof URL && source.protocol === 'file:') return fileURLToPath(source)
  throw argumentError('source', 'a path, a file:, http: or https: URL, or the bytes of a model', source)
}

function* parse(bytes: Uint8Array, context: TensorContext): Paced<Graph> {
  const { label } = context
  expectNotPointer(label, bytes)
  const model = yield* decodeMessagePaced(label, 'Model', bytes)
  if (!model.graph)
    throw new SparkError('ERR_FORMAT', `${label}: there is no graph in it: it is not an ONNX model`)
  const irVersion = Number(model.irVersion ?? 0n)
  if (irVersion > maxIrVersion) {
    throw new SparkError(
      'ERR_UNSUPPORTED',
      `${label}: IR version ${irVersion}; up to ${maxIrVersion} are supported`,
    )
  }
  const opsets = readOpsets(model.opsetImport ?? [], label)
  // Before IR version 3 a model named no opset and meant the first.
  if (opsets.size === 0) opsets.set('', 1)
  if ((opsets.get('') ?? 0) > maxOpset) {
    throw new SparkError(
      'ERR_UNSUPPORTED',
      `${label}: opset ${opsets.get('')}; up to ${maxOpset} are supported`,
    )
  }
  const functions: GraphFunction[] = []
  for (const definition of model.functions ?? []) functions.push(yield* readFunction(context, definition))
  const main = yield* readGraph(context, model.graph, 'graph')
  const overridable = irVersion < minOverridable ? [] : yield* readOverridable(model.graph, main, label)
  const graph: Graph = {
    ...main,
    ...(overridable.length > 0 && { overridable }),
    metadata: readEntries(model.metadata),
    opsets,
    functions,
    producer: { name: model.producerName ?? '', version: model.producerVersion ?? '' },
  }
  return yield* checkGraphPaced(graph, label)
}

function readOpsets(list: readonly Message<'OperatorSet'>[], label: string): Map<string, number> {
  const opsets = new Map<string, number>()
  for (const { domain = '', version = 0n } of list) {
    if (version < 0n || version > 1_000_000n) {
      throw new SparkError('ERR_FORMAT', `${label}: opset ${version} of domain '${domain}' is no version`)
    }
    // 'ai.onnx' is the written form of the standard domain.
    opsets.set(domain === 'ai.onnx' ? '' : domain, Number(version))
  }
  return opsets
}

function readEntries(entries: readonly Message<'Entry'>[] = []): Map<string, string> {
  return new Map(entries.map(({ key = '', value = '' }) => [key, value]))
}

function* readGraph(context: TensorContext, graph: Message<'Graph'>, what: string): Paced<Subgraph> {
  const { label } = context
  const initializers = yield* readInitializers(context, graph, what)
  const infos = (list: readonly Message<'ValueInfo'>[] = []) =>
    mapPaced(list, info => readValueInfo(info, label))
  const values = new Map<string, ValueType>()
  for (const { name, type } of yield* infos(graph.valueInfo)) if (type) values.set(name, type)
  return {
    name: graph.name ?? '',
    // Files before IR version 4 list initializers among the inputs, and many later ones still do.
    inputs: (yield* infos(graph.input)).filter(({ name }) => !initializers.has(name)),
    outputs: yield* infos(graph.output),
    nodes: yield* readNodes(context, graph.node, what),
    initializers,
    values,
    metadata: readEntries(graph.metadata),
  }
}

/** Initializers that are inputs, too. */
function* readOverridable(
  { input = [] }: Message<'Graph'>,
  { initializers }: Subgraph,
  label: string,
): Paced<ValueInfo[]> {
  const listed = input.filter(({ name = '' }) => initializers.has(name))
  return yield* mapPaced(listed, info => {
    const { name, type } = readValueInfo(info, label)
    const { dtype, shape } = initializers.get(name)!
    return { name, type: type ?? tensorType(dtype, shape) }
  })
}

function* readInitializers(
  context: TensorContext,
  graph: Message<'Graph'>,
  what: string,
): Paced<Map<string, Constant>> {
  const initializers = new Map<string, Constant>()
  const add = (name: string, constant: Constant): void => {
    if (name === '' || initializers.has(name)) {
      const why = name === '' ? 'an initializer has no name' : `the initializer '${name}' occurs twice`
      throw new SparkError('ERR_FORMAT', `${context.label}: ${what}: ${why}`)
    }
    initializers.set(name, constant)
  }
  for (const tensor of graph.initializer ?? []) {
    const name = tensor.name ?? ''
    add(name, yield* readTensor(context, tensor, `initializer '${name}'`))
  }
  for (const tensor of graph.sparseInitializer ?? []) {
    const name = tensor.values?.name ?? ''
    const location = `sparse initializer '${name}'`
    const sparse = yield* readSparse(context, tensor, location)
    add(name, yield* densify(sparse, `${context.label}: ${location}`))
  }
  return initializers
}

function* readNodes(
  context: TensorContext,
  nodes: readonly Message<'Node'>[] = [],
  what: string,
): Paced<Node[]> {
  const made: Node[] = []
  for (const [i, node] of nodes.entries()) made.push(yield* readNode(context, node, `${what}.node[${i}]`))
  return made
}

function* readNode(context: TensorContext, node: Message<'Node'>, what: string): Paced<Node> {
  yield
  const { name = '', opType = '', domain = '', overload, metadata } = node
  const location = `${what} '${name}' (${opType})`
  if (opType === '') throw new SparkError('ERR_FORMAT', `${context.label}: ${location} names no operator`)
  const nested = (graph: Message<'Graph'>, inner: string) => readGraph(context, graph, inner)
  return {
    op: opType,
    domain: domain === 'ai.onnx' ? '' : domain,
    name,
    inputs: node.input ?? [],
    outputs: node.output ?? [],
    attributes: yield* readAttributes(context, node.attribute ?? [], location, nested),
    ...(overload && { overload }),
    ...(metadata && { metadata: readEntries(metadata) }),
  }
}

function* readFunction(context: TensorContext, definition: Message<'Function'>): Paced<GraphFunction> {
  const { name = '', domain = '', overload = '', input = [], output = [], attribute = [] } = definition
  const what = `function '${name}'`
  const nested = (graph: Message<'Graph'>, inner: string) => readGraph(context, graph, inner)
  return {
    name,
    domain: domain === 'ai.onnx' ? '' : domain,
    overload,
    inputs: input,
    outputs: output,
    attributes: attribute,
    defaults: yield* readAttributes(context, definition.attributeProto ?? [], what, nested),
    nodes: yield* readNodes(context, definition.node, what),
    opsets: readOpsets(definition.opsetImport ?? [], `${context.label}: ${what}`),
  }
}
