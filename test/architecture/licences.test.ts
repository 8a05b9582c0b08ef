// What `npm install dgx-spark` brings has a licence that permits any use.
import { readFileSync } from 'node:fs'
import path from 'node:path'
import t from 'tap'

const permissive = ['MIT', 'ISC', 'Apache-2.0', 'BSD-2-Clause', 'BSD-3-Clause', '0BSD']

/** Of an expression of SPDX all parts are looked at: (Apache-2.0 AND BSD-3-Clause). */
const partsOf = (licence: string): string[] => licence.replaceAll(/[()]/g, '').split(/ AND | OR /)

interface LockedPackage {
  readonly license?: string
  readonly dev?: boolean
  readonly devOptional?: boolean
}

t.test('dependencies have a permissive licence', async t => {
  const lock = readFileSync(path.resolve(import.meta.dirname, '../../package-lock.json'), 'utf8')
  const packages: [string, LockedPackage][] = Object.entries(JSON.parse(lock).packages)
  const installed = packages.filter(([, { dev, devOptional }]) => !dev && !devOptional)
  t.ok(
    installed.some(([name]) => name === 'node_modules/commander'),
    'the lock file was read',
  )
  for (const [name, { license = 'none' }] of installed)
    for (const part of partsOf(license)) t.ok(permissive.includes(part), `${name || 'dgx-spark'}: ${license}`)
})
