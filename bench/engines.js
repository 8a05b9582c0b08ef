// engines.js: this package and onnxruntime-node behind one interface, each imported when it is asked for.

/** @import { ModelOptions } from 'dgx-spark' */

/**
 * @typedef {object} EngineTensor a tensor of an engine; outputs of a run may be inputs of the next one
 * @property {readonly number[]} shape or dims
 * @property {any} data
 */

/**
 * @typedef {object} Engine a model that is open
 * @property {(feeds: Record<string, EngineTensor>) => Promise<Record<string, EngineTensor>>} run
 * @property {() => Stateful} [bindState] of this package only
 * @property {() => unknown} dispose
 */

/** @typedef {Pick<Engine, 'run' | 'dispose'>} Stateful a model that keeps its past */

/** @typedef {{ threads: number } & Pick<ModelOptions, 'memory' | 'weightCache'>} EngineOptions all but threads: of this package only */

/**
 * @typedef {object} Package
 * @property {(values: Float32Array | BigInt64Array, shape: number[]) => EngineTensor} tensor
 * @property {(file: string, options: EngineOptions) => Promise<Engine>} open
 */

/** @returns {Promise<Package>} */
async function ours() {
  const { Model, Tensor } = await import('dgx-spark')
  return {
    tensor: (values, shape) => Tensor.from(values, { shape }),
    open: async (file, options) => {
      const model = await Model.load(file, { backend: 'cpu', ...options })
      return {
        run: feeds => model.run(/** @type {any} */ (feeds)),
        bindState: () => {
          const states = model.bindState()
          return { run: feeds => states.run(/** @type {any} */ (feeds)), dispose: () => states.dispose() }
        },
        dispose: () => model.dispose(),
      }
    },
  }
}

/** @returns {Promise<Package>} */
async function onnxRuntime() {
  const { default: ort } = await import('onnxruntime-node')
  return {
    tensor: (values, shape) =>
      /** @type {any} */ (
        new ort.Tensor(
          values instanceof Float32Array ? 'float32' : 'int64',
          /** @type {any} */ (values),
          shape,
        )
      ),
    open: async (file, { threads }) => {
      const session = await ort.InferenceSession.create(file, {
        intraOpNumThreads: threads,
        interOpNumThreads: 1,
        logSeverityLevel: 3,
      })
      return {
        run: async feeds => /** @type {any} */ (await session.run(/** @type {any} */ (feeds))),
        dispose: () => session.release(),
      }
    },
  }
}

export const packages = { 'dgx-spark': ours, 'onnxruntime-node': onnxRuntime }
