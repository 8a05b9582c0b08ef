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
 * @param {string} backend
 * @returns {Promise<Runner>}
 */
export async function openRunner(backend) {
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
