


def forward(self, x, n : int = 2):
    add = x.add(1, alpha = 2);  x = None
    softmax = add.softmax(dim = -1);  add = None
    getitem = softmax[0]
    getitem_1 = softmax[(Ellipsis, slice(1, n, None))];  softmax = n = None
    max_1 = getitem_1.max(dim = 0)
    return {'z': (getitem, getitem_1), 'last': max_1}
    