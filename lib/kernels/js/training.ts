// training.ts: the loss and the optimizer step in plain TypeScript.
import { argumentError, expectInteger, expectNumber } from '../../core/checks.js'
import { SparkError } from '../../core/errors.js'
import type { KernelArgs } from '../kernels.js'
import { maxAdamwTensors } from '../network-args.js'
import { expectArrays } from './operands.js'
import { elements, type KernelRows, optional } from './row.js'

/** loss[0] = mean over t of −log softmax(logits[t, :])[labels[t]]; dlogits = (softmax − onehot) / T */
function softmaxCrossEntropy(args: KernelArgs['softmaxCrossEntropy']): void {
  const { tokens, classes, logits, labels, loss, dlogits } = args
  expectLabels(args)
  let total = 0
  for (let t = 0; t < tokens; t++) {
    const start = t * classes
    let max = Number.NEGATIVE_INFINITY
    for (let c = 0; c < classes; c++) max = Math.max(max, logits[start + c]!)
    let sum = 0
    for (let c = 0; c < classes; c++) sum += Math.exp(logits[start + c]! - max)
    total += Math.log(sum) + max - logits[start + labels[t]!]!
    for (let c = 0; dlogits && c < classes; c++) {
      const expected = c === labels[t] ? 1 : 0
      dlogits[start + c] = (Math.exp(logits[start + c]! - max) / sum - expected) / tokens
    }
  }
  loss[0] = total / tokens
}

const scalar = (value: number | Float64Array): number => (typeof value === 'number' ? value : value[0]!)

/** One AdamW step (Loshchilov and Hutter 2019, algorithm 2), in place; `step` counts from 1. */
function adamw(args: KernelArgs['adamw']): void {
  const { beta1, beta2, eps, weightDecay } = args
  const step = scalar(args.step)
  const lr = scalar(args.lr)
  const correction1 = 1 - beta1 ** step
  const correction2 = 1 - beta2 ** step
  for (const { count, grad, param, m, v } of args.tensors) {
    for (let i = 0; i < count; i++) {
      const g = grad[i]!
      m[i] = beta1 * m[i]! + (1 - beta1) * g
      v[i] = beta2 * v[i]! + (1 - beta2) * g * g
      const step = m[i]! / correction1 / (Math.sqrt(v[i]! / correction2) + eps)
      param[i] = param[i]! - lr * (step + weightDecay * param[i]!)
    }
  }
}

function expectLabels({ tokens, classes, labels }: KernelArgs['softmaxCrossEntropy']): void {
  for (let t = 0; t < tokens; t++) {
    if (labels[t]! < 0 || labels[t]! >= classes) {
      throw new SparkError('ERR_ARGUMENT', `labels[${t}] is ${labels[t]}; there are ${classes} classes`)
    }
  }
}

/** A number, or an array of one. */
function expectScalar(name: string, value: number | Float64Array): void {
  if (value instanceof Float64Array && value.length > 0) return
  expectNumber(name, value)
}

function expectTensors({ tensors }: KernelArgs['adamw']): void {
  if (!Array.isArray(tensors)) throw argumentError('tensors', 'an array', tensors)
  if (tensors.length > maxAdamwTensors) {
    throw argumentError('tensors', `at most ${maxAdamwTensors} tensors`, tensors.length)
  }
  for (const [i, tensor] of tensors.entries()) {
    const { count } = tensor
    expectInteger(`tensors[${i}].count`, count, 0)
    expectArrays(`tensors[${i}].`, tensor, { grad: count, param: count, m: count, v: count })
  }
}

/** Contracts of the loss and the optimizer step. */
export const trainingRows: KernelRows<'softmaxCrossEntropy' | 'adamw'> = {
  softmaxCrossEntropy: {
    kernel: softmaxCrossEntropy,
    sizes: ['tokens', 'classes'],
    operands: ({ tokens, classes }) => ({
      logits: tokens * classes,
      labels: elements('i32', tokens),
      loss: 1,
      dlogits: optional(tokens * classes),
    }),
  },
  adamw: {
    kernel: adamw,
    check(args) {
      expectScalar('step', args.step)
      expectScalar('lr', args.lr)
      expectTensors(args)
    },
    operands: () => ({}),
  },
}
