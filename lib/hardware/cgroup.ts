// cgroup.ts: the control groups of this process, whose limits are those of its container or service.
import path from 'node:path'
import { readText } from './system-files.js'

/**
 * Folders below `root` of this process's group and the groups above it, innermost first. In a container those that it
 * cannot see do not exist.
 * @param controller - of cgroup v1; absent: the groups of cgroup v2
 */
export function cgroupFolders(root: string, controller?: 'cpu' | 'memory'): string[] {
  const lines = (readText(root, 'proc/self/cgroup') ?? '').split('\n').map(line => line.split(':'))
  const own = lines.find(([number, controllers = '']) =>
    controller ? controllers.split(',').includes(controller) : number === '0' && controllers === '',
  )
  let name = own?.slice(2).join(':')
  if (!name?.startsWith('/')) return []
  const folders: string[] = []
  while (name !== undefined) {
    folders.push(path.join('sys/fs/cgroup', controller ?? '', name))
    name = name === '/' ? undefined : path.dirname(name)
  }
  return folders
}
