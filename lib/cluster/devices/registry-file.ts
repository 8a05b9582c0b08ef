// registry-file.ts: the file in which a node keeps every device that it has seen.
import { readFile } from 'node:fs/promises'
import path from 'node:path'
import { SparkError } from '../../core/errors.js'
import { ioError, makeFolder, writeFileAtomic } from '../../io/atomic-write.js'
import { lockFile, whenFree } from '../../io/lock.js'
import { checkDeviceRecord } from './check-record.js'
import type { DeviceRecord } from './device-record.js'

/** A device with when it was there, in milliseconds since 1970. */
export interface SeenDevice {
  readonly record: DeviceRecord
  readonly firstSeen: number
  readonly lastSeen: number
}

/** Version of the layout of the file. */
const version = 1

/** Devices in a file at most, and its characters. */
const [maxDevices, maxLength] = [10_000, 2 ** 28]

const timeOf = (value: unknown): value is number => Number.isSafeInteger(value) && (value as number) >= 0

/**
 * Reads the devices of a file; none of a file that is not there.
 * @throws SparkError ERR_FORMAT naming the file that is damaged and what to do, ERR_IO
 */
export async function readRegistry(file: string): Promise<SeenDevice[]> {
  let text: string
  try {
    text = await readFile(file, 'utf8')
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return []
    throw ioError('read', file, error)
  }
  try {
    return parseRegistry(text)
  } catch (cause) {
    const remedy = 'move it away, and devices are found again'
    throw new SparkError('ERR_FORMAT', `${file} is damaged: ${(cause as Error).message}; ${remedy}`, {
      cause,
    })
  }
}

function parseRegistry(text: string): SeenDevice[] {
  if (text.length > maxLength) throw new Error(`it has more than ${maxLength} characters`)
  const content = JSON.parse(text) as { version?: unknown; devices?: unknown } | null
  if (content?.version !== version) throw new Error(`its version is not ${version}`)
  const { devices } = content
  if (!Array.isArray(devices) || devices.length > maxDevices) throw new Error('it has no list of devices')
  return devices.map((entry, i) => {
    const { record, firstSeen, lastSeen } = (entry ?? {}) as Record<string, unknown>
    if (!timeOf(firstSeen) || !timeOf(lastSeen)) throw new Error(`devices[${i}] has no times`)
    return { record: checkDeviceRecord(`devices[${i}].record`, record), firstSeen, lastSeen }
  })
}

/**
 * Changes the devices of a file while no other process does.
 * @param change - the devices in the file as they shall be; of more than a file takes those not seen for longest are left out
 * @returns what was written
 * @throws SparkError as {@link readRegistry}; ERR_BUSY when another process holds the file for seconds
 */
export async function updateRegistry(
  file: string,
  change: (devices: SeenDevice[]) => readonly SeenDevice[],
): Promise<readonly SeenDevice[]> {
  await makeFolder(path.dirname(path.resolve(file)))
  using _ = await whenFree(() => lockFile(file))
  const devices = fitting(change(await readRegistry(file)), maxLength - 100)
  await writeFileAtomic(file, [Buffer.from(`${JSON.stringify({ version, devices })}\n`)])
  return devices
}

/** The devices that a list in JSON of so many characters takes, in their order: those that were seen last. */
export function fitting(devices: readonly SeenDevice[], length: number): readonly SeenDevice[] {
  let left = length
  const newest = [...devices].sort((a, b) => b.lastSeen - a.lastSeen).slice(0, maxDevices)
  const end = newest.findIndex(device => {
    left -= JSON.stringify(device).length + 1
    return left < 0
  })
  const kept = new Set(end < 0 ? newest : newest.slice(0, end))
  return devices.filter(device => kept.has(device))
}
