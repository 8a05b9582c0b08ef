// drives.ts: the drives that sources of the command line name.
import { stat } from 'node:fs/promises'
import path from 'node:path'
import { comma2k19Name, findComma2k19 } from '../../data/route/comma2k19.js'
import { formatRouteName } from '../../data/route/names.js'
import { findRoutes, type Route } from '../../data/route/routes.js'

/** Segments of one drive of comma2k19. */
export interface CommaDrive {
  /** `dongle|log`, or the name of the folder where that says no more. */
  readonly name: string
  readonly segments: readonly { readonly number: number; readonly name: string; readonly folder: string }[]
}

/** What was found. */
export interface Drives {
  readonly routes: readonly Route[]
  readonly comma2k19: readonly CommaDrive[]
}

/**
 * Finds routes of openpilot and segments of comma2k19.
 * @throws SparkError as findRoutes
 */
export async function findDrives(sources: readonly string[]): Promise<Drives> {
  const folders: string[] = []
  const others: string[] = []
  for (const source of sources) {
    const isFolder = (await stat(source).catch(() => undefined))?.isDirectory()
    const found = isFolder ? await findComma2k19(source) : []
    if (found.length > 0) folders.push(...found)
    else others.push(source)
  }
  return { routes: others.length > 0 ? await findRoutes(others) : [], comma2k19: commaDrives(folders) }
}

function commaDrives(folders: readonly string[]): CommaDrive[] {
  const drives = new Map<string, CommaDrive['segments'][number][]>()
  for (const folder of new Set(folders)) {
    const id = comma2k19Name(folder)
    const name = id ? formatRouteName({ ...id, segment: null }) : path.basename(folder)
    const segments = drives.get(name) ?? []
    drives.set(name, segments)
    segments.push({ number: id?.segment ?? 0, name: id ? formatRouteName(id) : name, folder })
  }
  return [...drives].map(([name, segments]) => ({ name, segments }))
}
