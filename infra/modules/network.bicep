// A virtual network: a subnet that the app's traffic leaves by, and private endpoints of its storage with their names.
param name string
param location string
param tags object

@description('The network\'s addresses; two subnets of a /24 each are taken from it.')
param addressPrefix string

@description('Resource id of the app\'s storage account.')
param storageId string

var services = ['blob', 'queue', 'table']

resource network 'Microsoft.Network/virtualNetworks@2024-05-01' = {
  name: name
  location: location
  tags: tags
  properties: {
    addressSpace: { addressPrefixes: [addressPrefix] }
    subnets: [
      {
        name: 'app'
        properties: {
          addressPrefix: cidrSubnet(addressPrefix, 24, 0)
          delegations: [
            {
              name: 'app'
              properties: { serviceName: 'Microsoft.App/environments' }
            }
          ]
        }
      }
      {
        name: 'endpoints'
        properties: {
          addressPrefix: cidrSubnet(addressPrefix, 24, 1)
        }
      }
    ]
  }
}

// The public name of each service leads to these names inside the network.
resource zones 'Microsoft.Network/privateDnsZones@2024-06-01' = [
  for service in services: {
    name: 'privatelink.${service}.${environment().suffixes.storage}'
    location: 'global'
    tags: tags
  }
]

resource links 'Microsoft.Network/privateDnsZones/virtualNetworkLinks@2024-06-01' = [
  for (service, i) in services: {
    parent: zones[i]
    name: name
    location: 'global'
    tags: tags
    properties: {
      registrationEnabled: false
      virtualNetwork: { id: network.id }
    }
  }
]

resource endpoints 'Microsoft.Network/privateEndpoints@2024-05-01' = [
  for service in services: {
    name: '${name}-${service}'
    location: location
    tags: tags
    properties: {
      subnet: { id: '${network.id}/subnets/endpoints' }
      privateLinkServiceConnections: [
        {
          name: service
          properties: {
            privateLinkServiceId: storageId
            groupIds: [service]
          }
        }
      ]
    }
  }
]

resource names 'Microsoft.Network/privateEndpoints/privateDnsZoneGroups@2024-05-01' = [
  for (service, i) in services: {
    parent: endpoints[i]
    name: 'default'
    properties: {
      privateDnsZoneConfigs: [
        {
          name: service
          properties: { privateDnsZoneId: zones[i].id }
        }
      ]
    }
  }
]

// The names must lead into the network before the app starts, so it takes the subnet from here.
output appSubnetId string = '${network.id}/subnets/app'
