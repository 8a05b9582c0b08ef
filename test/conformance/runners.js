// runners.js: what runs a case: a compiled plan on one of our backends.

import { canonicalise } from '#lib/graph/rewrites/canonicalise.js'
import { parseOnnx } from '#lib/io/onnx/read.js'
import { parseTensor } from '#lib/io/onnx/read-tensor.js'
import { openCpuKernels } from '#lib/runtime/cpu.js'
import { jsKernels } from '#lib/runtime/js/js.js'
import { unpackedData } from '#lib/runtime/plan/packed.js'
import { Plan } from '#lib/runtime/plan/plan.js'

/**
 * @typedef {{ dtype: any, shape: readonly number[], data: any }} Tensor
 * @typedef {(model: Uint8Array, inputs: Uint8Array[], outputs: Uint8Array[]) =>
 *   Promise<{ results: { name: string, value: Tensor }[], expected: Tensor[] }>} Runner
 */

/**
 * @param {string} backend - cpu, js or onnxruntime
 * @returns {Promise<Runner>}
 */
export async function openRunner(backend) {
  if (backend === 'onnxruntime') return openOnnxRuntime()
  const kernels = backend === 'js' ? jsKernels : openCpuKernels()
  return async (model, inputs, outputs) => {
    const graph = canonicalise(parseOnnx(model))
    const constants = new Map(graph.inputs.map(({ name }, i) => [name, inputs[i] && parseTensor(inputs[i])]))
    const { plan, feeds } = await compiled(kernels, graph, constants)
    try {
      const results = await plan.run(feeds)
      return {
        results: plan.outputs.map(({ name, dtype, shape }) => ({
          name,
          value: { dtype, shape, data: results[name] },
        })),
        expected: outputs.map(bytes => asTensor(parseTensor(bytes))),
      }
    } finally {
      plan.dispose()
    }
  }
}

/** Names of element types in ONNX Runtime; it takes no others from JavaScript. */
const runtimeTypes = {
  ...{
    f32: 'float32',
    f64: 'float64',
    f16: 'float16',
    bool: 'bool',
    i64: 'int64',
    u64: 'uint64',
    i32: 'int32',
  },
  ...{ u32: 'uint32', i16: 'int16', u16: 'uint16', i8: 'int8', u8: 'uint8' },
}

/** @returns {Promise<Runner>} */
async function openOnnxRuntime() {
  const { InferenceSession, Tensor } = await import('onnxruntime-node')
  const names = Object.fromEntries(Object.entries(runtimeTypes).map(([ours, theirs]) => [theirs, ours]))
  return async (model, inputs, outputs) => {
    const expected = outputs.map(bytes => asTensor(parseTensor(bytes)))
    const given = inputs.map(bytes => asTensor(parseTensor(bytes)))
    // A process that fetches an output of less than 8 bits dies.
    for (const { dtype } of [...given, ...expected]) {
      if (!Object.hasOwn(runtimeTypes, dtype))
        throw new Error(`ONNX Runtime takes no ${dtype} from JavaScript`)
    }
    const session = await InferenceSession.create(model, { logSeverityLevel: 4 })
    const feed = (/** @type {Tensor} */ { dtype, data, shape }) =>
      new Tensor(/** @type {any} */ (runtimeTypes)[dtype], data, shape)
    const feeds = Object.fromEntries(given.map((tensor, i) => [session.inputNames[i], feed(tensor)]))
    const results = await session.run(feeds)
    await session.release()
    const value = (/** @type {any} */ { type, dims, data }) => ({ dtype: names[type], shape: dims, data })
    return { results: session.outputNames.map(name => ({ name, value: value(results[name]) })), expected }
  }
}

/** @param {any} constant */
const asTensor = constant => ({ dtype: constant.dtype, shape: constant.shape, data: unpackedData(constant) })

/**
 * A plan whose shapes do not depend on the elements of inputs, or, if that cannot be, one for these elements.
 * @param {any} kernels
 * @param {any} graph
 * @param {Map<string, any>} constants
 */
async function compiled(kernels, graph, constants) {
  const fed = [...constants].filter(([, constant]) => constant)
  const shapes = Object.fromEntries(fed.map(([name, { shape }]) => [name, shape]))
  const feeds = Object.fromEntries(fed.map(([name, constant]) => [name, unpackedData(constant)]))
  try {
    return { plan: await Plan.create(graph, kernels, { shapes }), feeds }
  } catch {
    const fixed = { ...graph, inputs: [], initializers: new Map([...graph.initializers, ...fed]) }
    return { plan: await Plan.create(fixed, kernels, {}), feeds: {} }
  }
}
