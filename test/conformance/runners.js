// runners.js: what runs a case: a model on one of our backends, or ONNX Runtime itself.
import { Model } from 'dgx-spark'
import { readTensor, readValue } from './values.js'

/**
 * @typedef {{ dtype: any, shape: readonly number[], data: any }} Tensor
 * @typedef {(model: Uint8Array, inputs: Uint8Array[], outputs: Uint8Array[]) =>
 *   Promise<{ results: { name: string, value: any }[], expected: any[] }>} Runner
 */

/**
 * @param {string} backend - cpu, js or onnxruntime
 * @returns {Promise<Runner>}
 */
export async function openRunner(backend) {
  if (backend === 'onnxruntime') return openOnnxRuntime()
  return async (bytes, inputs, outputs) => {
    const model = await Model.load(bytes, { backend: /** @type {any} */ (backend) })
    const feeds = model.inputs.flatMap(({ name, kind }, i) => {
      const given = inputs[i]
      return given ? [[name, readValue(kind, given)]] : []
    })
    const results = await model.run(Object.fromEntries(feeds)).finally(() => model.dispose())
    return {
      results: model.outputs.map(({ name }) => ({ name, value: results[name] })),
      expected: outputs.map((given, i) => readValue(model.outputs[i]?.kind ?? 'tensor', given)),
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
    const expected = outputs.map(bytes => readTensor(bytes))
    const given = inputs.map(bytes => readTensor(bytes))
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
