// main.js: prints docs/gpu-model.md: node bench/gpu-model/main.js [file]; with a file writes it.
import { writeFile } from 'node:fs/promises'
import { parseCommandLine } from '../command-line.js'
import { gpuModelPage } from './page.js'

const { positionals } = parseCommandLine({ allowPositionals: true })
const page = await gpuModelPage()
if (positionals[0]) await writeFile(positionals[0], page)
else process.stdout.write(page)
