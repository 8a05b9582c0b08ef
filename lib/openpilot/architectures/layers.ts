// layers.ts: the layers that the networks of openpilot are made of.
import type { Network } from './network.js'

/** Factor of the deviation of weights behind ReLU and its kin, which halve the mean square (He et al. 2015). */
const rectified = Math.SQRT2

/** Deviation of biases. */
const biasDeviation = 0.1

/** `Gemm` with a bias: [1, width] -> [1, out]. */
export function linear(
  net: Network,
  x: string,
  scope: string,
  width: number,
  out: number,
  gain: number = rectified,
): string {
  const weight = net.weight(`${scope}.weight`, [out, width], gain / Math.sqrt(width))
  const bias = net.weight(`${scope}.bias`, [out], biasDeviation)
  return net.add(scope, 'Gemm', [x, weight, bias], { transB: 1 })
}

/** {@link linear} and ReLU. */
export function dense(net: Network, x: string, scope: string, width: number, out: number): string {
  return net.add(scope, 'Relu', [linear(net, x, `${scope}.0`, width, out)])
}

/** `MatMul` with a bias: [1, n, width] -> [1, n, out]. */
export function tokenLinear(net: Network, x: string, scope: string, width: number, out: number): string {
  const weight = net.weight(`${scope}.weight`, [width, out], 1 / Math.sqrt(width))
  const bias = net.weight(`${scope}.bias`, [out], biasDeviation)
  return net.add(scope, 'Add', [bias, net.add(scope, 'MatMul', [x, weight])])
}

/**
 * Two layers beside a shortcut, ReLU behind their sum: [1, width] -> [1, out]. Where the widths differ, the shortcut is a
 * layer, too.
 */
export function residual(net: Network, x: string, scope: string, width: number, out: number): string {
  const first = dense(net, x, `${scope}.block_a`, width, out)
  const second = linear(net, first, `${scope}.block_b`, out, out, 0.5)
  const shortcut = width === out ? x : linear(net, x, `${scope}.shortcut`, width, out)
  return net.add(scope, 'Relu', [net.add(scope, 'Add', [second, shortcut])])
}

/** What a {@link convolution} is like. */
interface ConvolutionShape {
  /** Input channels. */
  readonly width: number
  /** Output channels. */
  readonly out: number
  /** Rows and columns of the kernel; the padding keeps the size of the picture at stride 1. */
  readonly kernel: number
  readonly stride?: number
  readonly groups?: number
  readonly bias?: boolean
  /** Factor of the deviation of the weights. */
  readonly gain?: number
}

/** `Conv`: [1, width, h, w] -> [1, out, h / stride, w / stride]. */
export function convolution(net: Network, x: string, scope: string, shape: ConvolutionShape): string {
  const { width, out, kernel, stride = 1, groups = 1, bias = true, gain = 1 } = shape
  const fanIn = (width / groups) * kernel ** 2
  const weight = net.weight(`${scope}.weight`, [out, width / groups, kernel, kernel], gain / Math.sqrt(fanIn))
  const edge = (kernel - 1) / 2
  const inputs = [x, weight, ...(bias ? [net.weight(`${scope}.bias`, [out], biasDeviation)] : [])]
  return net.add(scope, 'Conv', inputs, {
    kernel_shape: [kernel, kernel],
    strides: [stride, stride],
    pads: [edge, edge, edge, edge],
    dilations: [1, 1],
    group: groups,
  })
}

/** GELU by tanh (Hendrycks and Gimpel 2016): 0.5 x (1 + tanh(√(2/π) (x + 0.044715 x³))), operation by operation. */
export function gelu(net: Network, x: string, scope: string): string {
  const multiply = (a: string, b: string): string => net.add(scope, 'Mul', [a, b])
  const add = (a: string, b: string): string => net.add(scope, 'Add', [a, b])
  const cube = multiply(x, multiply(x, x))
  const inner = add(x, multiply(net.number(scope, 0.044715), cube))
  const scaled = multiply(net.number(scope, Math.sqrt(2 / Math.PI)), inner)
  const gate = add(net.number(scope, 1), net.add(scope, 'Tanh', [scaled]))
  return multiply(net.number(scope, 0.5), multiply(x, gate))
}

/** LayerNorm over the last axis, operation by operation. */
export function layerNorm(net: Network, x: string, scope: string, width: number): string {
  const mean = (value: string): string => net.add(scope, 'ReduceMean', [value], { axes: [-1], keepdims: 1 })
  const centred = net.add(scope, 'Sub', [x, mean(x)])
  const variance = mean(net.add(scope, 'Pow', [centred, net.number(scope, 2)]))
  const deviation = net.add(scope, 'Sqrt', [net.add(scope, 'Add', [variance, net.number(scope, 1e-5)])])
  const scale = net.weight(`${scope}.weight`, [width], 0.1, 1)
  const shift = net.weight(`${scope}.bias`, [width], biasDeviation)
  const scaled = net.add(scope, 'Mul', [net.add(scope, 'Div', [centred, deviation]), scale])
  return net.add(scope, 'Add', [scaled, shift])
}
