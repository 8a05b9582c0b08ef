// window-operands.ts: checks of the windows of convolutions and pooling.
import { argumentError, expectInteger } from '../../core/checks.js'
import { numel } from '../../core/shape.js'
import type { ConvShape } from '../kernels.js'
import type { Windows } from '../layer-kernel-args.js'

/** Sizes along the axes of a window; `pads` says the least that each of its pads may be. */
export function expectWindow(
  window: Omit<ConvShape, 'batch' | 'groups'>,
  pads: Readonly<Record<string, number>>,
): void {
  const axes = { image: 0, kernel: 1, out: 0, strides: 1, dilations: 1, ...pads }
  for (const [name, least] of Object.entries(axes)) {
    const sizes = (window as unknown as Readonly<Record<string, unknown>>)[name]
    const fits = Array.isArray(sizes) && sizes.length === window.image.length
    if (!fits || sizes.length < 1 || sizes.length > 3) {
      throw argumentError(name, 'an array of 1 to 3 integers, as long as image', sizes, 'ERR_SHAPE')
    }
    sizes.forEach((size, axis) => {
      expectInteger(`${name}[${axis}]`, size, least, 2 ** 31 - 1)
    })
  }
}

/** Elements of the image and of the output of a pooling. */
export function poolSizes(windows: Windows): { image: number; out: number } {
  expectWindow(windows, { padsBegin: 0, padsEnd: 0 })
  return { image: windows.planes * numel(windows.image), out: windows.planes * numel(windows.out) }
}
