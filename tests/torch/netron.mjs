// Opens files as Netron does, with its own code: node netron.mjs FOLDER FILE …, where FOLDER/source holds Netron's scripts and
// FOLDER/package.json says that they are modules (viewers.py makes it of the package `netron`). One line a file: its format and
// sizes, or what is wrong.
import fs from 'node:fs';
import path from 'node:path';
import { pathToFileURL } from 'node:url';

const [folder, ...files] = process.argv.slice(2);
const script = (name) => import(pathToFileURL(path.resolve(folder, 'source', `${name}.js`)).href);
const base = await script('base');
const view = await script('view');

const host = {
    document: {},
    environment: () => null,
    event: () => {},
    exception: (error) => {
        throw error;
    },
    request: async (file, encoding) => fs.readFileSync(path.join(folder, 'source', file), encoding || null),
    require: async (id) => script(id.replace('./', '')),
    type: 'test',
    version: 'test',
    window: {}
};

for (const file of files) {
    const context = {
        entries: new Map(),
        error: host.exception,
        exception: host.exception,
        identifier: path.basename(file),
        request: host.request,
        require: host.require,
        stream: new base.BinaryStream(fs.readFileSync(file))
    };
    try {
        const model = await new view.ModelFactoryService(host).open(context);
        const [graph] = model.modules || model.graphs;
        const count = (list) => list.reduce((sum, node) => sum + node.inputs.reduce((n, i) => n + i.value.length, 0), 0);
        console.log(`${model.format}: ${graph.nodes.length} nodes, ${count(graph.nodes)} edges`);
    } catch (error) {
        console.log(`failed: ${error.message}`);
    }
}
