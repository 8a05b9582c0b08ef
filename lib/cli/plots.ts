// plots.ts: the library that draws plots (uPlot), for pages that hold all they need.
import { readFileSync } from 'node:fs'
import { createRequire } from 'node:module'
import path from 'node:path'

/** Script, with its license, and style sheet of uPlot, to stand in a page. */
export function plotLibrary(): { readonly script: string; readonly style: string } {
  const folder = path.dirname(createRequire(import.meta.url).resolve('uplot/package.json'))
  const [script, style, license] = ['dist/uPlot.iife.min.js', 'dist/uPlot.min.css', 'LICENSE'].map(file =>
    readFileSync(path.join(folder, file), 'utf8'),
  )
  return { script: `/*! uPlot. ${license} */\n${script}`, style: style! }
}
