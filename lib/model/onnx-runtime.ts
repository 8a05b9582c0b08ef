// onnx-runtime.ts: ONNX Runtime as an engine, where the user has installed onnxruntime-node.
import type { InferenceSession, Tensor } from 'onnxruntime-node'
import { type ElementType, elementArrayOf } from '../core/dtype.js'
import { SparkError } from '../core/errors.js'
import type { Graph } from '../graph/graph.js'
import { decompose } from '../graph/rewrites/decompose.js'
import { inferFacts } from '../graph/shape-inference.js'
import { serializeOnnx } from '../io/onnx/write.js'
import type { Engine, RuntimeProvider } from './engine.js'
import { type HostTensor, type HostValue, hostTensor } from './values.js'

/** Names of the element types that ONNX Runtime takes from JavaScript. */
const runtimeTypes: Partial<Record<ElementType, Tensor.Type>> = {
  f32: 'float32',
  f64: 'float64',
  f16: 'float16',
  i64: 'int64',
  u64: 'uint64',
  i32: 'int32',
  u32: 'uint32',
  i16: 'int16',
  u16: 'uint16',
  i8: 'int8',
  u8: 'uint8',
  bool: 'bool',
  string: 'string',
}

const ourTypes = new Map(Object.entries(runtimeTypes).map(([ours, theirs]) => [theirs, ours as ElementType]))

/** The package. */
export type Runtime = typeof import('onnxruntime-node')

/**
 * Loads the package.
 * @throws SparkError ERR_UNSUPPORTED when it is not installed
 */
export async function loadRuntime(): Promise<Runtime> {
  try {
    // Bundlers leave it alone: it is found where the program runs, or not.
    return await import(/* webpackIgnore: true */ /* @vite-ignore */ 'onnxruntime-node')
  } catch (cause) {
    const message = "backend 'onnxruntime' needs the package onnxruntime-node: npm install onnxruntime-node"
    throw new SparkError('ERR_UNSUPPORTED', message, { cause })
  }
}

/**
 * Opens a model in ONNX Runtime; operators of our own become standard ones.
 * @throws SparkError ERR_UNSUPPORTED when onnxruntime-node is not installed or refuses the model or provider
 */
export async function openOnnxRuntime(
  graph: Graph,
  provider: RuntimeProvider,
  threads: number,
): Promise<Engine> {
  const runtime = await loadRuntime()
  // What nobody feeds is constant, so that ONNX Runtime computes on it once.
  const bytes = serializeOnnx({ ...typed(decompose(graph)), overridable: [] })
  const session = await refusal(
    runtime.InferenceSession.create(bytes, {
      executionProviders: [provider as InferenceSession.ExecutionProviderConfig],
      logSeverityLevel: 3,
      ...(threads > 0 && { intraOpNumThreads: threads }),
    }),
  )
  const name = typeof provider === 'string' ? provider : provider.name
  return {
    choice: { name: 'onnxruntime', reason: `the option asks for onnxruntime, with the provider ${name}` },
    stats: {
      plans: 0,
      steps: 0,
      setupSteps: 0,
      arenaBytes: 0,
      lowerBound: 0,
      constantBytes: 0,
      compilations: 0,
      compileMs: 0,
      fusions: {},
    },
    async run(inputs, { outputs } = {}) {
      const feeds = graph.inputs.map(({ name }, i) => [name, toRuntime(runtime, name, inputs[i]!)] as const)
      const wanted = outputs?.map(index => graph.outputs[index]!) ?? graph.outputs
      const names = wanted.map(({ name }) => name)
      const results = await refusal(session.run(Object.fromEntries(feeds), names))
      return names.map(name => fromRuntime(results[name]!))
    },
    async bind() {
      throw new SparkError('ERR_UNSUPPORTED', 'ONNX Runtime cannot be bound to memory here: use run')
    },
    async profile() {
      throw new SparkError('ERR_UNSUPPORTED', 'ONNX Runtime tells no times of its operators here')
    },
    dispose: () => void session.release(),
  }
}

/** The graph with the types of its outputs, which ONNX Runtime wants to know. */
function typed(graph: Graph): Graph {
  const facts = inferFacts(graph)
  const outputs = graph.outputs.map(info => {
    const type = info.type ?? facts.get(info.name)?.type
    return type ? { name: info.name, type } : info
  })
  return { ...graph, outputs }
}

/** What ONNX Runtime does; its errors as ERR_UNSUPPORTED. */
export async function refusal<T>(work: Promise<T>): Promise<T> {
  try {
    return await work
  } catch (cause) {
    throw new SparkError('ERR_UNSUPPORTED', `ONNX Runtime: ${(cause as Error).message}`, { cause })
  }
}

/** A value as ONNX Runtime takes it. */
export function toRuntime({ Tensor }: Runtime, name: string, value: HostValue): Tensor {
  const type = value.kind === 'tensor' ? runtimeTypes[value.dtype] : undefined
  if (value.kind !== 'tensor' || !type) {
    const what = value.kind === 'tensor' ? value.dtype : `a value of the kind ${value.kind}`
    throw new SparkError('ERR_DTYPE', `feeds['${name}']: ONNX Runtime takes no ${what} from JavaScript`)
  }
  return new Tensor(type, value.data as never, [...value.shape])
}

/** A tensor of ONNX Runtime. */
export function fromRuntime({ type, dims, data }: Tensor): HostTensor {
  const dtype = ourTypes.get(type) as ElementType
  if (dtype === 'string') return hostTensor(dtype, dims, data as string[])
  const { buffer, byteOffset, length } = data as Float32Array
  return hostTensor(dtype, dims, new (elementArrayOf(dtype))(buffer, byteOffset, length))
}
