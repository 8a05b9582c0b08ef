import { printable, printableError } from './printable.js'

/** Every code a {@link SparkError} can carry. docs/errors.md says what to do about each. */
export type ErrorCode =
  | 'ERR_ARGUMENT'
  | 'ERR_BUSY'
  | 'ERR_CONFLICT'
  | 'ERR_CUDA'
  | 'ERR_DENIED'
  | 'ERR_DISABLED'
  | 'ERR_DISPOSED'
  | 'ERR_DTYPE'
  | 'ERR_FORMAT'
  | 'ERR_INTERNAL'
  | 'ERR_IO'
  | 'ERR_NO_CUDA'
  | 'ERR_NO_NATIVE'
  | 'ERR_NO_ZERO_COPY'
  | 'ERR_NOT_FINITE'
  | 'ERR_OUT_OF_MEMORY'
  | 'ERR_RANGE'
  | 'ERR_SHAPE'
  | 'ERR_UNSUPPORTED'

/**
 * The only error this library throws on purpose. `message` says what happened, with values, and what to do; control
 * characters in names that it quotes are escaped. `code` is stable and meant for programs.
 * @example
 * try {
 *   await Model.load('missing.onnx')
 * } catch (error) {
 *   if (error instanceof SparkError && error.code === 'ERR_IO') console.log(error.message)
 * }
 */
export class SparkError extends Error {
  /** `SparkError`. */
  override readonly name = 'SparkError'
  /** Stable identifier of the kind of failure. */
  readonly code: ErrorCode

  /**
   * @param code - kind of failure
   * @param message - what happened, with values, then what to do
   * @param options - `cause`: the error below this one
   */
  constructor(code: ErrorCode, message: string, options?: ErrorOptions) {
    super(
      printable(message),
      options && 'cause' in options ? { cause: printableError(options.cause) } : undefined,
    )
    this.code = code
  }
}
