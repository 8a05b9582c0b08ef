/**
 * GPU machine learning for Node.js: on NVIDIA DGX Spark with the GPU, on everything else on the CPU.
 *
 * @packageDocumentation
 */

// errors
export { type ErrorCode, SparkError } from './core/errors.js'
