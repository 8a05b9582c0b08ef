// comma2k19.ts: segments of the comma2k19 data set: poses of the camera, CAN frames and measurements, in .npy files without an
// ending. All times are in seconds since boot.
import { readdir } from 'node:fs/promises'
import path from 'node:path'
import { expectText } from '../../core/checks.js'
import { SparkError } from '../../core/errors.js'
import { ioError } from '../../io/atomic-write.js'
import { readBytes } from '../../io/read-file.js'
import type { Tensor } from '../../memory/tensor.js'
import { formatRouteName, parseRouteName, type RouteName } from './names.js'

/** How deep segments may be below a folder: chunk/route/number. */
const maxDepth = 4

/** The name of the segment in a folder `dongle|log/number`; null where it says less. */
export function comma2k19Name(folder: string): RouteName | null {
  const target = path.resolve(folder)
  return parseRouteName(`${path.basename(path.dirname(target))}/${path.basename(target)}`)
}

/**
 * Finds the segments of comma2k19 in a folder: folders with global_pose and processed_log.
 * @returns their paths, by name of the route and number
 * @throws SparkError ERR_IO for a folder that cannot be read
 */
export async function findComma2k19(folder: string): Promise<string[]> {
  expectText('folder', folder)
  const found = await segmentsBelow(path.resolve(folder), 0)
  const order = new Intl.Collator('en', { numeric: true })
  return found.sort((a, b) => order.compare(a, b))
}

async function segmentsBelow(folder: string, depth: number): Promise<string[]> {
  const inner = await folders(folder)
  if (inner.includes('global_pose') && inner.includes('processed_log')) return [folder]
  if (depth === maxDepth) return []
  const found = await Promise.all(inner.map(name => segmentsBelow(path.join(folder, name), depth + 1)))
  return found.flat()
}

/** Poses of the camera at each frame of the video, in ECEF coordinates. */
export interface Poses {
  /** s, [frames]. */
  readonly times: Float64Array
  /** m, [frames, 3]. */
  readonly positions: Float64Array
  /** Unit quaternions, real part first, [frames, 4]. */
  readonly orientations: Float64Array
  /** m/s, [frames, 3]. */
  readonly velocities: Float64Array
}

/** CAN frames as they arrived. */
export interface CanFrames {
  /** s, [count]. */
  readonly times: Float64Array
  /** [count]. */
  readonly addresses: Uint32Array
  /** [count]; 128 more than the bus for frames that were sent. */
  readonly buses: Uint8Array
  /** 8 bytes of each frame, [count, 8]; shorter ones end with zeros. */
  readonly data: Uint8Array
}

/** A measurement over time. */
export interface Measurement {
  /** s, [count]. */
  readonly times: Float64Array
  /** Values of each time, [count, width]. */
  readonly values: Float64Array
  /** Number of values of each time. */
  readonly width: number
}

/** A minute of a drive of comma2k19. */
export interface Comma2k19Segment {
  /** `dongle|log--number`. */
  readonly name: string
  /** At each frame of the video. */
  readonly poses: Poses
  /** Of all buses. */
  readonly can: CanFrames
  /**
   * Measurements by their folders below processed_log: `CAN/speed` (m/s), `CAN/steering_angle` (degrees), `CAN/wheel_speed`
   * (m/s), `CAN/radar`, `IMU/gyro` (rad/s), `IMU/accelerometer` (m/s^2), `GNSS/live_gnss_ublox` …
   */
  readonly measurements: ReadonlyMap<string, Measurement>
}

/**
 * Reads a segment of comma2k19.
 * @param folder - that of the segment, which has the folders global_pose and processed_log
 * @throws SparkError ERR_IO when a file is missing, ERR_FORMAT when arrays do not fit each other
 */
export async function readComma2k19(folder: string): Promise<Comma2k19Segment> {
  expectText('folder', folder)
  const target = path.resolve(folder)
  const pose = async (name: string, width: number): Promise<Float64Array> =>
    floats(await array(path.join(target, 'global_pose', name)), width)
  const poses: Poses = {
    times: await pose('frame_times', 1),
    positions: await pose('frame_positions', 3),
    orientations: await pose('frame_orientations', 4),
    velocities: await pose('frame_velocities', 3),
  }
  expectRows(folder, poses.times.length, {
    frame_positions: poses.positions.length / 3,
    frame_orientations: poses.orientations.length / 4,
    frame_velocities: poses.velocities.length / 3,
  })
  expectAscending(`${folder}: frame_times`, poses.times)
  const processed = path.join(target, 'processed_log')
  const id = comma2k19Name(target)
  return {
    name: id ? formatRouteName(id) : path.basename(target),
    poses,
    can: await canFrames(path.join(processed, 'CAN', 'raw_can')),
    measurements: await readMeasurements(processed),
  }
}

async function canFrames(folder: string): Promise<CanFrames> {
  const read = (name: string): Promise<Tensor> => array(path.join(folder, name))
  const times = floats(await read('t'), 1)
  const [addresses, buses, data] = [await read('address'), await read('src'), await read('data')]
  expectRows(folder, times.length, { address: addresses.size, src: buses.size, data: data.size / 8 })
  expectAscending(`${folder}/t`, times)
  return {
    times,
    addresses: Uint32Array.from(addresses.data as ArrayLike<number>, Number),
    buses: Uint8Array.from(buses.data as ArrayLike<number>, Number),
    data: data.data as unknown as Uint8Array,
  }
}

async function readMeasurements(processed: string): Promise<Map<string, Measurement>> {
  const measurements = new Map<string, Measurement>()
  for (const group of await folders(processed)) {
    for (const name of await folders(path.join(processed, group))) {
      if (name === 'raw_can') continue
      const folder = path.join(processed, group, name)
      const times = floats(await array(path.join(folder, 't')), 1)
      const values = await array(path.join(folder, 'value'))
      const width = values.shape[1] ?? 1
      expectRows(folder, times.length, { value: values.size / width })
      measurements.set(`${group}/${name}`, { times, values: floats(values, width), width })
    }
  }
  return measurements
}

async function folders(folder: string): Promise<string[]> {
  const entries = await readdir(folder, { withFileTypes: true }).catch(error => {
    throw ioError('read', folder, error)
  })
  return entries.flatMap(entry => (entry.isDirectory() ? [entry.name] : [])).sort()
}

async function array(file: string): Promise<Tensor> {
  const { parseNpy } = await import('../../io/npy.js')
  return parseNpy(await readBytes(file), file) as Tensor
}

function floats({ data, shape, dtype }: Tensor, width: number): Float64Array {
  const isFitting = (dtype as string) === 'f64' && (shape[1] ?? 1) === width
  if (!isFitting)
    throw new SparkError(
      'ERR_FORMAT',
      `an array is ${dtype} [${shape.join(', ')}]; expected f64 [n, ${width}]`,
    )
  return data as unknown as Float64Array
}

function expectRows(folder: string, rows: number, others: Readonly<Record<string, number>>): void {
  for (const [name, count] of Object.entries(others)) {
    if (count !== rows)
      throw new SparkError('ERR_FORMAT', `${folder}: ${name} has ${count} rows, but there are ${rows} times`)
  }
}

function expectAscending(label: string, times: Float64Array): void {
  const at = times.findIndex((time, i) => i > 0 && !(time >= times[i - 1]!))
  if (at >= 0)
    throw new SparkError('ERR_FORMAT', `${label}: time ${at}, ${times[at]}, is before ${times[at - 1]}`)
}
