// names.ts: names of routes and segments of openpilot, in all the forms in which people and folders write them.

/** A route, or a segment of it. */
export interface RouteName {
  /** Id of the device: 16 hexadecimal digits; null where the name leaves it out. */
  readonly dongle: string | null
  /** Start of the drive, such as 2023-07-27--13-01-19, or since 2024 its number, such as 00000123--0a1b2c3d4e. */
  readonly log: string
  /** Number of the segment: the minute of the drive; null for the whole route. */
  readonly segment: number | null
}

const pattern =
  /^(?:([0-9a-f]{16})[|/_])?(\d{4}-\d\d-\d\d--\d\d-\d\d-\d\d|[0-9a-f]{8}--[0-9a-f]{10})(?:(?:--|\/)(\d{1,6}))?$/i

/**
 * Reads `dongle|log`, `dongle|log--segment`, `dongle/log/segment`, `dongle|log/segment`, `dongle_log--segment`, each also without
 * the dongle.
 * @returns null for what is no such name
 */
export function parseRouteName(text: string): RouteName | null {
  const [found, dongle, log, segment] = pattern.exec(text) ?? []
  if (found === undefined) return null
  return {
    dongle: dongle?.toLowerCase() ?? null,
    log: log!.toLowerCase(),
    segment: segment === undefined ? null : Number(segment),
  }
}

/** `dongle|log--segment`. */
export function formatRouteName({ dongle, log, segment }: RouteName): string {
  return `${dongle === null ? '' : `${dongle}|`}${log}${segment === null ? '' : `--${segment}`}`
}
