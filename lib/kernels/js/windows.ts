// windows.ts: checks of the windows of convolutions and pooling.
import { argumentError, expectInteger } from '../../core/checks.js'
import type { WindowShape } from '../kernels.js'

/** Sizes along the axes of a window; `pads` says how small each of its pads may be. */
export function expectWindow(window: WindowShape, pads: Readonly<Record<string, number>>): void {
  const axes = { image: 0, kernel: 1, out: 0, strides: 1, dilations: 1, ...pads }
  for (const [name, min] of Object.entries(axes)) {
    const sizes = (window as unknown as Readonly<Record<string, unknown>>)[name]
    const fits = Array.isArray(sizes) && sizes.length === window.image.length
    if (!fits || sizes.length < 1 || sizes.length > 3) {
      throw argumentError(name, 'an array of 1 to 3 integers, as long as image', sizes, 'ERR_SHAPE')
    }
    sizes.forEach((size, axis) => {
      expectInteger(`${name}[${axis}]`, size, min, 2 ** 31 - 1)
    })
  }
}
