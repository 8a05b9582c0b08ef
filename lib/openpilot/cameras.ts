// cameras.ts: the cameras of openpilot's devices, and the projections from the frames that models read to theirs.
import { SparkError } from '../core/errors.js'

/** Nine numbers by rows. */
export type Matrix3 = readonly number[]

/** A pinhole camera. */
export interface Camera {
  /** Pixels. */
  readonly width: number
  /** Pixels. */
  readonly height: number
  /** Pixels. */
  readonly focalLength: number
}

/** The cameras of a device that look at the road. */
export interface RoadCameras {
  /** That of the fcamera and the qcamera. */
  readonly narrow: Camera
  /** That of the ecamera, of devices that have one. */
  readonly wide?: Camera
}

const ar0231: RoadCameras = {
  narrow: { width: 1928, height: 1208, focalLength: 2648 },
  wide: { width: 1928, height: 1208, focalLength: 567 },
}
const os04c10: RoadCameras = {
  narrow: { width: 1344, height: 760, focalLength: 1141.5 },
  wide: { width: 1344, height: 760, focalLength: 425.25 },
}
const neo: RoadCameras = { narrow: { width: 1164, height: 874, focalLength: 910 } }

const bySensor: Readonly<Record<string, RoadCameras>> = { ar0231, ox03c10: ar0231, os04c10 }

/**
 * The cameras of a device.
 * @param sensor - as roadCameraState says it; logs before 2022 say `unknown`
 * @param deviceType - as initData says it: neo (EON, comma two) had another camera
 */
export function roadCameras(sensor: string, deviceType: string): RoadCameras {
  return bySensor[sensor] ?? (deviceType === 'neo' ? neo : ar0231)
}

/** Width and height of the frames that models read, before packing. */
export const modelFrameSize = { width: 512, height: 256 } as const

/** The road ahead: a virtual camera without pitch and yaw. */
const medmodel: Matrix3 = [910, 0, 256, 0, 910, 47.6, 0, 0, 1]
/** As {@link medmodel}, with twice its field of view. */
const sbigmodel: Matrix3 = [455, 0, 256, 0, 455, (256 + 47.6) / 2, 0, 0, 1]

/** From the device (x forward, y right, z down) to the view (x right, y down, z forward). */
const viewFromDevice: Matrix3 = [0, 1, 0, 0, 0, 1, 1, 0, 0]
const deviceFromView: Matrix3 = [0, 0, 1, 1, 0, 0, 0, 1, 0]

/** a b */
function multiply(a: Matrix3, b: Matrix3): number[] {
  return a.map((_, i) => {
    const [row, column] = [3 * Math.floor(i / 3), i % 3]
    return a[row]! * b[column]! + a[row + 1]! * b[column + 3]! + a[row + 2]! * b[column + 6]!
  })
}

/** The rotation Rz(yaw) Ry(pitch) Rx(roll), angles in rad. */
export function rotation([roll = 0, pitch = 0, yaw = 0]: ArrayLike<number> & Iterable<number>): number[] {
  const [cr, sr, cp, sp, cy, sy] = [roll, pitch, yaw].flatMap(a => [Math.cos(a), Math.sin(a)]) as Six
  const x = [1, 0, 0, 0, cr, -sr, 0, sr, cr]
  const y = [cp, 0, sp, 0, 1, 0, -sp, 0, cp]
  const z = [cy, -sy, 0, sy, cy, 0, 0, 0, 1]
  return multiply(z, multiply(y, x))
}
type Six = [number, number, number, number, number, number]

/** The matrix of a camera whose frames are stored with another size. */
function intrinsics(
  { width, height, focalLength }: Camera,
  stored: { width: number; height: number },
): Matrix3 {
  const [x, y] = [stored.width / width, stored.height / height]
  return [focalLength * x, 0, stored.width / 2, 0, focalLength * y, stored.height / 2, 0, 0, 1]
}

/** The matrix from pixels of a model's frame to directions from the calibrated device. */
function directions([focal, , x, , , y]: Matrix3): number[] {
  return multiply(deviceFromView, [1 / focal!, 0, -x! / focal!, 0, 1 / focal!, -y! / focal!, 0, 0, 1])
}

/**
 * The projection from points of a model's frame to points of the camera's, as openpilot computes it:
 * K · view_from_device · R(rpy) · (K_model · view_from_device)⁻¹.
 * @param frame - `medmodel`: the road; `sbigmodel`: twice the field of view
 * @param stored - size of the frames, which the qcamera stores smaller
 * @param rpy - roll, pitch, yaw of the calibration, rad
 */
export function warpMatrix(
  frame: 'medmodel' | 'sbigmodel',
  camera: Camera,
  stored: { readonly width: number; readonly height: number },
  rpy: ArrayLike<number> & Iterable<number>,
): number[] {
  const toCamera = multiply(intrinsics(camera, stored), multiply(viewFromDevice, rotation(rpy)))
  return multiply(toCamera, directions(frame === 'medmodel' ? medmodel : sbigmodel))
}

/**
 * The projection that scales whole frames to another size, for models that read all of them.
 * @throws SparkError ERR_ARGUMENT for sizes that are not positive
 */
export function scaleMatrix(
  from: { readonly width: number; readonly height: number },
  to: { readonly width: number; readonly height: number },
): number[] {
  if (!(to.width > 0 && to.height > 0))
    throw new SparkError('ERR_ARGUMENT', `to must be a size in pixels, got ${to.width} x ${to.height}`)
  const [x, y] = [from.width / to.width, from.height / to.height]
  // Centres of pixels, which are half a pixel from where their indices are.
  return [x, 0, (x - 1) / 2, 0, y, (y - 1) / 2, 0, 0, 1]
}

/** Row, column: the point of a camera's frame where a point in front of the calibrated device (m) is seen; null behind it. */
export function project(
  camera: Camera,
  stored: { readonly width: number; readonly height: number },
  rpy: ArrayLike<number> & Iterable<number>,
  [x, y, z]: readonly [number, number, number],
): { readonly x: number; readonly y: number } | null {
  const m = multiply(intrinsics(camera, stored), multiply(viewFromDevice, rotation(rpy)))
  const w = m[6]! * x + m[7]! * y + m[8]! * z
  if (w <= 0) return null
  return { x: (m[0]! * x + m[1]! * y + m[2]! * z) / w, y: (m[3]! * x + m[4]! * y + m[5]! * z) / w }
}
