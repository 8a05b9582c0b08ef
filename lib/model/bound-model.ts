// bound-model.ts: a model on memory of the caller.
import type { ElementArray, ElementType, TypedArrayOf } from '../core/dtype.js'
import { SparkError } from '../core/errors.js'
import { Tensor } from '../memory/tensor.js'
import type { Plan } from '../plan/plan.js'
import type { Binding } from '../plan/program.js'
import type { HostTensor, HostValue } from './values.js'

/**
 * A model whose inputs and outputs stay where they are: write into {@link BoundModel.inputs}, run, read
 * {@link BoundModel.outputs}. Made by `Model.bind`.
 * @example
 * const model = await Model.load('model.onnx')
 * const image = new Float32Array(3 * 224 * 224)
 * const bound = await model.bind({ image })
 * image.fill(0.5)
 * await bound.run()
 * console.log(bound.outputs.scores.data)
 * bound.dispose()
 */
export class BoundModel implements Disposable {
  /** What a run reads, by name. */
  readonly inputs: Readonly<Record<string, Tensor<ElementType>>>
  /** What a run writes, by name. */
  readonly outputs: Readonly<Record<string, Tensor<ElementType>>>
  readonly #plan: Plan

  /**
   * @internal
   * @throws SparkError ERR_SHAPE or ERR_DTYPE for an array that does not fit its output, ERR_UNSUPPORTED for one that
   * shares its memory with another input or output in the model
   */
  constructor(plan: Plan, buffers: ReadonlyMap<string, ElementArray>) {
    const tensorOf = (binding: Binding): [string, Tensor<ElementType>] => {
      const array = plan.arrayOf(binding)
      const given = buffers.get(binding.name)
      if (given && given !== array) {
        const why = 'shares its memory with another input or output of the model; leave it out'
        throw new SparkError('ERR_UNSUPPORTED', `'${binding.name}' ${why}`)
      }
      return [binding.name, Tensor.of(array as TypedArrayOf<ElementType>, binding.shape, binding.dtype)]
    }
    this.inputs = Object.fromEntries(plan.inputs.map(tensorOf))
    this.outputs = Object.fromEntries(plan.outputs.map(tensorOf))
    this.#plan = plan
  }

  /**
   * Runs the model. The tensors must not be touched until the promise settles.
   * @throws SparkError ERR_ARGUMENT while a run is in progress; ERR_DISPOSED also when memory of a tensor was detached
   */
  async run(): Promise<void> {
    await this.#plan.runBound()
  }

  /** Frees what was compiled; the tensors stay. A second dispose is a no-op. */
  dispose(): void {
    this.#plan.dispose()
  }

  /** As {@link BoundModel.dispose}. */
  [Symbol.dispose](): void {
    this.dispose()
  }
}

/**
 * A value that a plan can be bound to.
 * @throws SparkError ERR_DTYPE for strings, sequences and missing values
 */
export function expectBindable(value: HostValue): HostTensor {
  if (value.kind === 'tensor' && value.dtype !== 'string') return value
  throw new SparkError('ERR_DTYPE', 'only tensors of numbers can be bound: use run')
}
